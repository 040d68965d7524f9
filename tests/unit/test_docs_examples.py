"""Every example on a page is what it says it is: configuration that `hocket config check` accepts,
pipelines that can be applied, Python that compiles and imports what there is, commands with options that
the command line has, JSON. What sessions print is checked where they are played (constructs, nodes,
tutorials); SQL in `tests/integration/ledger/test_docs_sql.py`."""

import ast
import importlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from hocket.cli.app import app
from hocket.cli.local.config_check import KNOWN, checked
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.pipeline.spec import NodeBase
from support.places import ROOT

PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE
)
COMMAND = typer.main.get_command(app)
FRAGMENTS = {"requires", "answer"}
"""Parts of a node, shown alone."""
FILES = {"engines", "speed"}
"""Keys of files that are no configuration of the platform's: those of `hocket emulate`."""
OTHER_PROGRAMS = frozenset(
    """. apt apt-get cat cd chmod curl docker echo export git helm kill kubectl mkdir nats nats-server
    npm openssl pg_dump pg_restore pip podman printf psql pytest runuser sed service sudo systemctl umask
    unset uv""".split()
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line on which it begins."""

    page: Path
    line: int
    kind: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(*kinds: str) -> list[Any]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            if match["kind"] in kinds:
                indent = match["indent"]
                body = "".join(
                    line.removeprefix(indent) for line in match["text"].splitlines(keepends=True)
                )
                line = text.count("\n", 0, match.start()) + 1
                block = Block(page, line, match["kind"], body)
                found.append(pytest.param(block, id=block.name))
    return found


@pytest.mark.parametrize("block", _blocks("json"))
def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", _blocks("python"))
def test_python_compiles_and_imports_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text, block.name)):
        names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = getattr(node, "module", None)
        for name in names:
            place = module or name.name
            if not place.startswith("hocket"):
                continue
            loaded = importlib.import_module(place)
            assert module is None or hasattr(loaded, name.name), f"{place} has no {name.name}"


@pytest.mark.parametrize("block", _blocks("yaml"))
async def test_yaml_is_what_the_platform_takes(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r"os\.environ/(\w+)", block.text):
        monkeypatch.setenv(name, "x")
    document = yaml.safe_load(
        re.sub(r"\[ \.\.\. \]", "[{base_url: http://a/v1, model: a}]", block.text)
    )
    assert isinstance(document, dict)
    if "pipeline" in document:
        compile_pipeline(parse_document(block.text))
        return
    keys = set(document)
    if keys & FILES or keys <= FRAGMENTS | set(NodeBase.model_fields) | {"config"}:
        return
    assert keys <= KNOWN, keys - KNOWN
    file = tmp_path / "hocket.yaml"
    file.write_text(yaml.safe_dump(document))
    found = await checked(file)
    # models and packages that a fragment names and does not define are not its mistakes
    faults = [one for one in found.faults if not _is_elsewhere(str(one))]
    assert not faults


def _is_elsewhere(fault: str) -> bool:
    return "my_package" in fault or "there is no model" in fault


def _commands(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a shell block as words, without comments and what they are piped to."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    text = re.sub(r"<<'?EOF'?.*?^EOF$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"=\$\([^()]*\)", "=printed", text).replace(" 2>&1", "")
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|;&"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


@pytest.mark.parametrize("block", _blocks("sh", "bash"))
def test_commands_have_the_options_that_there_are(block: Block) -> None:
    for words in _commands(block):
        while words and re.match(r"[A-Za-z_]+=", words[0]):
            words = words[1:]
        if words and words[0] == "$":
            words = words[1:]
        if not words:
            continue
        program, *arguments = words
        program = program.rpartition("/")[2]
        if program == "hocket":
            _parse(COMMAND, arguments)
        elif program in ("python", "python3"):
            assert arguments[0] != "-m" or find_spec(arguments[1]), arguments
        elif program == "make":
            makefile = (ROOT / "Makefile").read_text("utf-8")
            targets = [one for one in arguments if "=" not in one and not one.startswith("-")]
            assert all(re.search(rf"^{one}:", makefile, re.MULTILINE) for one in targets), arguments
        else:
            assert program in OTHER_PROGRAMS | {"hocket-worker"}, words


def _parse(command: click.Command, arguments: list[str]) -> None:
    """Parse a command line as `hocket` would, and run nothing."""
    arguments = [word for word in arguments if not re.fullmatch(r"\d?[<>].*", word)]
    _parse_below(None, command.name, command, arguments)


def _parse_below(
    above: click.Context | None, name: str | None, command: click.Command, arguments: list[str]
) -> None:
    if "--help" in arguments:
        return
    try:
        context = command.make_context(name, list(arguments), parent=above)
    except click.BadParameter as error:
        if "does not exist" in error.message:
            return  # a file of the reader's
        raise
    if isinstance(command, click.Group):
        name, below, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert below is not None, name
        _parse_below(context, name, below, rest)
