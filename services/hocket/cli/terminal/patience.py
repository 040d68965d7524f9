"""Waits for what goes on without this command, although the API may be away for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

from hocket.cli.terminal.errors import EndUnknown, is_missing, may_pass, retry_after_s
from hocket.schemas.errors import HocketError

T = TypeVar("T")

AWAY_S = 600.0
"""How long the API may give no answer at a time, as while it restarts."""
TOLD_S = 5.0
"""After how long without an answer the user is told."""
INTERVAL_S = 1.0
MAX_REST_S = 60.0


class Patience:
    """Looks at one thing until it ends. `what` names it, and the command `shown_by` shows it. Once
    `has_ended`, its end is known; what is read then is only more about it.

    `now_s` and `sleep` are for tests.
    """

    def __init__(
        self,
        what: str,
        shown_by: str,
        *,
        now_s: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.has_ended = False
        self._what, self._shown_by = what, shown_by
        self._now_s, self._sleep = now_s or time.monotonic, sleep or time.sleep
        self._least_rest_s = 0.0
        self._is_told = False

    def rest(self, usual_s: float) -> None:
        """Wait before the next look: longer than usual if the API has said that there are too many, and
        half as long with each answer since."""
        self._sleep(max(usual_s, self._least_rest_s))

    def answered(self, read: Callable[[], T]) -> T:
        """Return what `read` gets from the API, as soon as that answers. Raises EndUnknown if it refuses
        or does not answer for AWAY_S, and its own error if there is no such thing, or it has ended."""
        began_s = self._now_s()
        while True:
            try:
                answer = read()
            except HocketError as error:
                away_s = self._now_s() - began_s
                if not may_pass(error) or away_s >= AWAY_S:
                    if self.has_ended or is_missing(error):
                        raise
                    raise self._unknown(error) from error
                self._bear(error, away_s)
            else:
                self._rest_less()
                return answer
            self.rest(INTERVAL_S)

    def _rest_less(self) -> None:
        self._least_rest_s = min(self._least_rest_s, max(self._least_rest_s / 2, INTERVAL_S))

    def _bear(self, error: HocketError, away_s: float) -> None:
        from hocket.cli.terminal.console import notes

        asked_s = retry_after_s(error)
        if asked_s is not None:
            self._least_rest_s = min(max(asked_s, INTERVAL_S), MAX_REST_S)
        elif away_s >= TOLD_S and not self._is_told:
            notes.print("The API does not answer. Waiting until it does (Ctrl-C ends).")
            self._is_told = True

    def _unknown(self, error: HocketError) -> EndUnknown:
        shown_by = f": `{self._shown_by}` shows it" if may_pass(error) else ""
        return EndUnknown(what=self._what, reason=str(error), shown_by=shown_by)


def of_run(run_id: str) -> Patience:
    """Return the patience for a run."""
    return Patience(f"run {run_id}", f"hocket runs show {run_id}")
