"""The pages of docs/reference/constructs as data, so that tests can check what they say.

A page has the example of `examples/constructs` with its name; shell blocks, each followed by how the
run ends and its output; and a table `Misuse`, whose first cell is a change to the example: code
spans that set a place (`nodes.a.when: "x"`) or, after `without`, remove one.
"""

import copy
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.schemas.pipeline.document import parse_document
from support.places import ROOT

EXAMPLES = ROOT / "examples" / "constructs"
PAGES = sorted(
    p for p in (ROOT / "docs" / "reference" / "constructs").glob("*.md") if p.stem != "README"
)
NODES = ROOT / "examples" / "nodes"
NODE_PAGES = sorted((ROOT / "docs" / "reference" / "nodes").glob("*.md"))
"""Pages of node types; the session of `sql` needs a database and is tested elsewhere."""
TUTORIAL = ROOT / "examples" / "tutorial"
TUTORIALS = [ROOT / "docs" / "tutorials" / "first-pipeline.md"]
"""Tutorials based on `examples/tutorial`; own-agent.md writes its own files (`test_own_agent.py`)."""
COLUMNS = "| change to the example | field | reason | cure |"
EMITTED_COLUMNS = "| the planner emits | field | reason | cure |"


@dataclass(frozen=True)
class Misuse:
    """A change to a page's example, and the error that it must cause."""

    page: str
    change: str
    field: str
    reason: str
    cure: str


@dataclass(frozen=True)
class Session:
    """The commands of a shell block, and how the run that they start must end."""

    page: str
    commands: tuple[tuple[str, ...], ...]
    status: str
    code: str | None
    output: Any


def example(page: str) -> dict[str, Any]:
    """Return the pipeline that a page describes."""
    document: dict[str, Any] = parse_document((EXAMPLES / f"{page}.yaml").read_text("utf-8"))
    return document


def changed(document: dict[str, Any], change: str) -> dict[str, Any]:
    """Return a document with the changes in a table's cell applied."""
    result = copy.deepcopy(document)
    removing = False
    for words, span in re.findall(r"([^`]*)`((?:[^`\\]|\\.)+)`", change.replace("\\|", "|")):
        removing = "without" in words or (removing and words.strip() in (",", "and"))
        if removing:
            _remove(result, span.split("."))
        else:
            place, _, value = span.partition(":")
            _set(result, place.split("."), parse_document(f"value: {value.strip()}")["value"])
    return result


def misuses(page: Path, columns: str = COLUMNS) -> Iterator[Misuse]:
    """Yield the rows of a page's table of misuses."""
    lines = page.read_text("utf-8").splitlines()
    if columns not in lines:
        return
    for line in lines[lines.index(columns) + 2 :]:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        change, field, reason, cure = cells
        yield Misuse(page.stem, change, field.strip("`"), _plain(reason), _plain(cure))


def sessions(page: Path) -> Iterator[Session]:
    """Yield the shell blocks of a page that start a run, with the end that the page shows. Each begins
    with the pipelines that earlier blocks applied, so that it can run alone."""
    text = page.read_text("utf-8")
    applied: list[tuple[str, ...]] = []
    for block in re.finditer(r"```sh\n(.*?)```\n(.*?)(?=```sh|\n## |\Z)", text, re.DOTALL):
        commands = tuple(applied) + tuple(_commands(block[1]))
        applied = [command for command in commands if command[:2] == ("pipeline", "apply")]
        end = re.search(r"ends\s+`(\w+)`(?:\s+with\s+`(\w+)`)?", block[2])
        if end is None:
            continue
        output = re.search(r"```json\n(.*?)```", block[2], re.DOTALL)
        yield Session(
            page=page.stem,
            commands=commands,
            status=end[1],
            code=end[2],
            output=None if output is None else json.loads(output[1]),
        )


def _commands(block: str) -> Iterator[tuple[str, ...]]:
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "hocket", line
            yield tuple(words[1:])


def _set(document: Any, place: list[str], value: Any) -> None:
    *way, last = place
    for part in way:
        document = (
            document[int(part)] if isinstance(document, list) else document.setdefault(part, {})
        )
    if isinstance(document, list):
        document[int(last)] = value
    else:
        document[last] = value


def _remove(document: Any, place: list[str]) -> None:
    *way, last = place
    for part in way:
        document = document[int(part)] if isinstance(document, list) else document[part]
    del document[last]


def _plain(cell: str) -> str:
    return cell.replace("\\|", "|")
