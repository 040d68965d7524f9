"""The examples of docs/reference/rest-api.md: read from the page, and played on a platform in its
order.

An answer must have the fields of the page's answer, and for `status`, `state`, `code` and `outcome`
also its values. Random values (ids, a dead letter's number) are inserted into the requests that follow.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "rest-api.md"
EXAMPLE = re.compile(
    r"^```http\n(?P<method>[A-Z]+) (?P<path>\S+)\n(?P<headers>(?:[A-Za-z-]+: [^\n]*\n)*)"
    r"(?:\n(?P<body>.*?))?```\n\n`(?P<status>\d{3})[^`]*`"
    r"(?:[^\n]*\n\n```(?P<kind>json|text)\n(?P<answer>.*?)```)?",
    re.DOTALL | re.MULTILINE,
)
PRESENT_WITHIN_S = 40.0
"""How long it may take until what is read exists: a run ends, a row is stored."""
LOOK_S = 0.2
TOLD = frozenset({"status", "state", "code", "outcome"})
"""Fields whose values must be those of the page."""
CHANCE = re.compile(r"[a-z_]*[0-9a-f]{8,}.*|\d+")
"""Values that requests may repeat, and that differ from platform to platform."""
MORE = "..."
"""A field that stands for others that the page does not show."""
STREAM_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Example:
    """A request and its answer."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    status: int
    kind: str
    answer: str

    @property
    def name(self) -> str:
        """The request line."""
        return f"{self.method} {self.path}"


def examples(page: Path = PAGE) -> list[Example]:
    """Return the examples of the page."""
    text = page.read_text("utf-8")
    found = [
        Example(
            match["method"],
            match["path"],
            dict(line.split(": ", 1) for line in match["headers"].splitlines()),
            match["body"] or "",
            int(match["status"]),
            match["kind"] or "",
            match["answer"] or "",
        )
        for match in EXAMPLE.finditer(text)
    ]
    assert len(found) == text.count("\n```http\n"), "some are not of the form of an example"
    return found


@dataclass
class Player:
    """Sends examples to an API, one after another."""

    session: aiohttp.ClientSession
    url: str
    actual: dict[str, str] = field(default_factory=dict)
    """The page's ids, mapped to those of this platform."""
    answers: list[str] = field(default_factory=list)
    """The answers as they were received."""

    async def play(self, example: Example) -> list[str]:
        """Send one example; return how its answer differs from the page's."""
        until_s = asyncio.get_running_loop().time() + PRESENT_WITHIN_S
        while True:
            differences = await self._sent(example)
            late = asyncio.get_running_loop().time() > until_s
            if not differences or example.method != "GET" or late:
                return differences
            await asyncio.sleep(LOOK_S)

    async def _sent(self, example: Example) -> list[str]:
        async with self.session.request(
            example.method,
            self.url + self.here(example.path),
            data=self.here(example.body).encode() or None,
            headers=example.headers,
        ) as reply:
            if example.kind == "text":
                return await self._stream(example, reply)
            text = await reply.text()
            self.answers.append(text)
        if reply.status != example.status:
            return [f"status {reply.status}, not {example.status}: {text[:500]}"]
        if not example.answer:
            return [] if not text else [f"there is an answer: {text[:200]}"]
        page, answer = json.loads(example.answer), json.loads(text)
        found = list(differences(page, answer, "answer"))
        if not found:
            self.actual.update(_pairs(page, answer))
        return found

    async def _stream(self, example: Example, reply: aiohttp.ClientResponse) -> list[str]:
        """Compare the names of a stream's first events with the page's."""
        named = re.findall(r"^event: (.*)$", example.answer, re.MULTILINE)
        heard: list[str] = []
        try:
            async with asyncio.timeout(STREAM_TIMEOUT_S):
                while len(heard) < len(named) and (line := await reply.content.readline()):
                    heard += re.findall(r"^event: (.*)$", line.decode().strip())
        except TimeoutError:
            pass
        right = reply.status == HTTPStatus.OK and heard == named
        return [] if right else [f"status {reply.status}, events {heard}, not {named}"]

    def here(self, text: str) -> str:
        """Return a part of a request with the ids of this platform."""
        if not self.actual:
            return text
        known = "|".join(re.escape(one) for one in sorted(self.actual, key=len, reverse=True))
        return re.sub(
            rf"(?<![0-9A-Za-z])({known})(?![0-9A-Za-z])", lambda one: self.actual[one[0]], text
        )


def differences(page: Any, answer: Any, place: str) -> Iterator[str]:
    """Yield the places where an answer does not have the form shown by the page."""
    if isinstance(page, dict) and isinstance(answer, dict):
        if page.keys() != answer.keys() and MORE not in page:
            yield f"{place} has {sorted(answer)}, not {sorted(page)}"
        for key in page.keys() & answer.keys():
            if key in TOLD and isinstance(page[key], str) and page[key] != answer[key]:
                yield f"{place}.{key} is {answer[key]!r}, not {page[key]!r}"
            yield from differences(page[key], answer[key], f"{place}.{key}")
    elif isinstance(page, list) and isinstance(answer, list):
        if len(answer) < len(page):
            yield f"{place} has {len(answer)} items, not {len(page)}"
        for number, (one, other) in enumerate(zip(page, answer, strict=False)):
            yield from differences(one, other, f"{place}.{number}")
    elif page is not None and answer is not None and _kind(page) != _kind(answer):
        yield f"{place} is {answer!r}, not {page!r}"


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _pairs(page: Any, answer: Any) -> Iterator[tuple[str, str]]:
    """Yield pairs of a value on the page and the corresponding value of this platform."""
    if isinstance(page, dict):
        for key, value in page.items():
            if key == MORE:
                continue
            if key == "seq":
                yield str(value), str(answer[key])
            yield from _pairs(value, answer[key])
    elif isinstance(page, list):
        for one, other in zip(page, answer, strict=False):
            yield from _pairs(one, other)
    elif isinstance(page, str) and isinstance(answer, str) and CHANCE.fullmatch(page):
        yield page, answer
