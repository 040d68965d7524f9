"""The live display of a run while it is awaited: one line per step with its latest state."""

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hocket.cli.drawing.amounts import duration
from hocket.cli.drawing.states import style
from hocket.schemas.messages import StepChanged

REFRESH_PER_S = 12
MAX_LINES = 30


class Progress:
    """Draws on `console` inside `with`, if `shown`; the drawing is removed afterwards."""

    def __init__(self, console: Console, title: str, *, shown: bool) -> None:
        self._title = title
        self._steps: dict[str, StepChanged] = {}
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=REFRESH_PER_S,
            transient=True,
        )  # fmt: skip
        self._shown = shown

    def step(self, change: StepChanged) -> None:
        """Update the display with a change of a step."""
        self._steps[change.step] = change

    def __enter__(self) -> Self:
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._live.stop()

    def _picture(self) -> Group:
        lines = [Text(self._title, "dim")]
        changes = list(self._steps.values())
        if len(changes) > MAX_LINES:
            lines.append(Text(f"… {len(changes) - MAX_LINES} earlier steps", "dim"))
        for change in changes[-MAX_LINES:]:
            took = duration(change.duration_ms) if change.duration_ms is not None else ""
            again = f" (attempt {change.attempt})" if change.attempt > 1 else ""
            name = f"  {change.step[:40]:<40} "
            lines.append(
                Text.assemble(name, (change.state, style(change.state)), f"{again} {took}")
            )
        return Group(*lines)
