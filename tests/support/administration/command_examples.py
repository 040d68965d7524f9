"""The examples of docs/reference/command-line.md, and the ids in them."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import aiohttp

from support.administration.api_examples import Player
from support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "command-line.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OF_ITS_OWN = "## What starts or stops something of its own"
"""The section of commands that are not run on the platform of the examples."""
REFUSED = "hocket runs bulk-stop"
"""A command that is refused according to the page, because its operation has ended."""
WAITING = ("approve", "refuse", "signal", "cancel")
"""Commands for a run that waits for an approval."""
BOUND_S = 60.0
PAUSE_S = 0.05
ID = re.compile(r"[A-Z][A-Z_]+")


def commands(*, all_sections: bool = False) -> list[str]:
    """Return the page's command lines: those for a running platform, or all."""
    text = PAGE.read_text("utf-8")
    text = text if all_sections else text.partition(OF_ITS_OWN)[0]
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line.removeprefix("PYTHONPATH=examples/nodes ") for line in lines]


@dataclass
class Places:
    """The values for the page's ids, on a platform on which the REST examples were played."""

    session: aiohttp.ClientSession
    url: str
    player: Player
    _last_cancelled: str = ""

    async def filled(self, line: str, word: str) -> str:
        """Return a word of a command line, with an id inserted if it is a placeholder."""
        if not ID.fullmatch(word):
            return word
        if word == "RUN":
            return await self._run(line)
        return await {
            "OTHER": self._other,
            "OPERATION": self._operation,
            "MESSAGE": self._message,
            "SEQ": self._dead_letter,
            "CALL": self._call,
            "KEY_ID": self._key,
        }[word]()

    async def _run(self, line: str) -> str:
        command = line.split()[2]
        if command == "retry":
            return self._last_cancelled
        if command not in WAITING:
            return (await self._runs("sort"))[-1]
        task = {"pipeline": "release", "input": {}}
        async with self.session.post(f"{self.url}/v1/runs", json=task) as reply:
            run_id = str((await reply.json())["run_id"])
        if command == "cancel":
            self._last_cancelled = run_id
        return run_id

    async def _other(self) -> str:
        return (await self._runs("sort"))[0]

    async def _runs(self, pipeline: str) -> list[str]:
        found = await self._get(f"/v1/runs?pipeline={pipeline}&status=succeeded")
        return [run["run_id"] for run in found["runs"]]

    async def _operation(self) -> str:
        return str((await self._get("/v1/bulk/operations"))["operations"][0]["operation_id"])

    async def _message(self) -> str:
        found = await self._get("/v1/webhooks/pager/deliveries")
        return str(found["deliveries"][0]["message_id"])

    async def _dead_letter(self) -> str:
        # one that a command before it redrove comes back in a moment
        async with asyncio.timeout(BOUND_S):
            while not (found := (await self._get("/v1/dead-letters"))["dead_letters"]):  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_S)
        return str(found[0]["seq"])

    async def _call(self) -> str:
        run_id = (await self._runs("sort"))[-1]
        return str((await self._get(f"/v1/calls?run={run_id}"))["calls"][0]["call_id"])

    async def _key(self) -> str:
        keys = (await self._get("/v1/keys"))["keys"]
        return next(str(key["key_id"]) for key in keys if key["name"] == "reporting")

    async def _get(self, path: str) -> Any:
        async with self.session.get(self.url + path) as reply:
            return await reply.json()
