"""How a call of a tool waits for its run."""

from typing import Any, cast

from hocket.cli.mcp import runs
from hocket.cli.mcp.kept_api import KeptApi
from hocket.cli.mcp.runs import Seen
from hocket.kit.process.clock import monotonic_ms

RUN = {"run_id": "r1", "pipeline": "asks"}
STARTED = Seen("r1", "asks", "running")


class SlowToTake:
    """Stands for a platform that still shows an approval for two looks after its answer was stored."""

    def __init__(self, then: dict[str, Any], approvals: list[dict[str, Any]]) -> None:
        self._then = then
        self._later = approvals
        self._looks = 0

    async def get(self, path: str, **_filters: str) -> dict[str, Any]:
        if path == "/v1/approvals":
            shown = [{"step": "look"}] if self._looks <= 2 else self._later
            return {"approvals": shown}
        self._looks += 1
        return {**RUN, "status": "running", **(self._then if self._looks > 2 else {})}


async def answered(api: SlowToTake) -> Seen:
    """Return the run as it is seen after the answer."""
    until_ms = monotonic_ms() + 20_000
    return await runs.wait(cast("KeptApi", api), STARTED, until_ms, {"look"})


async def test_an_answered_approval_is_not_asked_again() -> None:
    api = SlowToTake({"status": "succeeded", "output": "go", "finished_at": "now"}, [])
    seen = await answered(api)
    assert (seen.has_ended, seen.output) == (True, "go")


async def test_the_next_approval_is_asked() -> None:
    api = SlowToTake({}, [{"step": "look"}, {"step": "sign"}])
    seen = await answered(api)
    assert [one["step"] for one in seen.approvals] == ["sign"]
