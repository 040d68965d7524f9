"""Drops what was handed out and cancelled within the same event."""

from hocket.coordinator.core.run.commands import CancelAttempt, CancelSubRun, StartSubRun
from hocket.coordinator.core.run.state.messages import Command, Dispatch


def without_withdrawn(commands: list[Command]) -> list[Command]:
    """Drop what was handed out and cancelled within the same event, so that a race whose winner is
    taken over does not pay for its losers."""
    made: set[tuple[str, int] | str] = set()
    withdrawn: set[tuple[str, int] | str] = set()
    for command in commands:
        named = _attempt_of(command)
        if named is None:
            continue
        if isinstance(command, Dispatch | StartSubRun):
            made.add(named)
        elif named in made:
            withdrawn.add(named)
    return [one for one in commands if _attempt_of(one) not in withdrawn] if withdrawn else commands


def _attempt_of(command: Command) -> tuple[str, int] | str | None:
    if isinstance(command, Dispatch | CancelAttempt):
        return command.step, command.attempt
    if isinstance(command, StartSubRun):
        return command.accepted.run_id
    return command.run_id if isinstance(command, CancelSubRun) else None
