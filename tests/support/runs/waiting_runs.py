"""Runs of one step whose handler waits (`waiting_handlers`), on a platform of processes."""

import asyncio
from pathlib import Path
from typing import Any

from hocket.cli.local.platform import Platform

BOUND_S = 90
PAUSE_S = 0.05


class WaitingRuns:
    """A platform, and runs of one step each."""

    def __init__(self, platform: Platform, done: Path) -> None:
        self.platform = platform
        self._api = platform.api()
        self._done = done

    async def begin(
        self,
        handler: str,
        slo_ms: int = 600_000,
        calls: dict[str, Any] | None = None,
        **given: Any,
    ) -> str:
        node: dict[str, Any] = {
            "type": "python",
            "handler": f"waiting_handlers:{handler}",
            "with": {"v": "{{ input.v }}"} | {k: f"{{{{ input.{k} }}}}" for k in given},
        }
        if calls is not None:
            node["calls"] = calls
        name = f"{handler}{slo_ms}"
        document = {"pipeline": name, "slo_ms": slo_ms, "nodes": {"a": node}}
        await self._post("/v1/pipelines", document)
        begun = await self._post("/v1/runs", {"pipeline": name, "input": {"v": name, **given}})
        return str(begun["run_id"])

    async def signal(self, run_id: str, name: str, payload: Any = None) -> None:
        await self._post(f"/v1/runs/{run_id}/signals", {"name": name, "payload": payload})

    async def cancel(self, run_id: str) -> None:
        await self._post(f"/v1/runs/{run_id}/cancel", {})

    async def step(self, run_id: str) -> dict[str, Any]:
        return (await self.steps(run_id)).get("a", {})

    async def steps(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the steps by name."""
        found = await self._get(f"/v1/runs/{run_id}/steps")
        return {one["step"]: dict(one) for one in found["steps"]}

    async def apply(self, document: dict[str, Any]) -> None:
        await self._post("/v1/pipelines", document)

    async def waits(self, run_id: str) -> dict[str, Any]:
        """Return the step as soon as it is waiting."""
        async with asyncio.timeout(BOUND_S):
            while True:
                step = await self.step(run_id)
                if step.get("waits_for") is not None:
                    return step
                await asyncio.sleep(PAUSE_S)

    async def ended(self, run_id: str) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_S):
            while True:
                run = await self._get(f"/v1/runs/{run_id}")
                if run["finished_at"] is not None:
                    return run
                await asyncio.sleep(PAUSE_S)

    def done(self) -> list[str]:
        return self._done.read_text().splitlines() if self._done.exists() else []

    async def _post(self, path: str, body: Any) -> Any:
        return await asyncio.to_thread(self._api.post, path, body)

    async def _get(self, path: str) -> Any:
        return await asyncio.to_thread(self._api.get, path)
