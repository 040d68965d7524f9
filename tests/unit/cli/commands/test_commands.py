"""The command line without a platform: parsing, messages, exit codes."""

import gzip
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.terminal.sources import task_input
from hocket.gateway.core.config.access import parse_access
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import parse_document
from support.shared.commands import run_hocket

HELP_LIMIT_S = 1.5
"""Of CPU: how long it takes beside others is theirs to say."""
"""The claim is half a second on an idle machine; a test must also hold on a busy one."""

PIPELINE = """
pipeline: greet
input: {type: object, required: [name], properties: {name: {type: string}}}
nodes:
  hello: {type: python, handler: "greet:hello", with: {name: "{{ input.name }}"}}
"""


def hocket(*arguments: str, home: Path, given: str = "") -> "subprocess.CompletedProcess[str]":
    return run_hocket(*arguments, env=environment(home), given=given)


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "100"}


def test_help_answers_at_once_and_without_the_heavy_imports(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "hocket.cli", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(tmp_path),
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert done.returncode == 0
    assert re.search(r"up +Start the whole platform on this machine\.", done.stdout)
    assert took_s < HELP_LIMIT_S
    heavy = "import sys, hocket.cli.app; print([m for m in ('pydantic', 'nats', 'rich', 'asyncpg')"
    loaded = subprocess.run(
        [sys.executable, "-c", heavy + " if m in sys.modules])"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert loaded.stdout == "[]\n"


@pytest.mark.parametrize(
    "command",
    [
        ("up",), ("doctor",), ("run",), ("cost",), ("schema",), ("version",), ("migrate",),
        ("pipeline", "apply"), ("pipeline", "list"), ("pipeline", "show"), ("pipeline", "validate"),
        ("runs", "list"), ("runs", "show"), ("runs", "cancel"), ("runs", "retry"), ("runs", "rerun"),
        ("gateway", "explain"), ("gateway", "experiments"), ("emulate",),
        ("dlq", "list"), ("dlq", "show"), ("dlq", "redrive"), ("dlq", "drop"),
        ("index", "add"), ("index", "list"), ("index", "search"), ("index", "delete"),
        ("index", "repair"), ("import", "wfformat"),
    ],
)  # fmt: skip
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"], prog_name="hocket", env={"COLUMNS": "100"})

    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: hocket {' '.join(command)}")
    of_lists = r"(\[ARGS\]|\{\w+\}|^  \w+)\.\.\."  # an argument that may be several
    shown = re.sub(of_lists, "", done.stdout.split("Options:")[0], flags=re.MULTILINE)
    assert "..." not in shown, "the text is cut"


def test_validate_works_without_a_platform(tmp_path: Path) -> None:
    done = hocket("pipeline", "validate", "-", home=tmp_path, given=PIPELINE)

    assert done.stdout == "pipeline greet is valid: 1 node\n"
    assert "model names were not checked" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PIPELINE.replace("type: python", "type: pyhton"), "`nodes.hello.type`"),
        (PIPELINE + "  bye: {type: python, handler: 'a:b', needs: [bye]}\n", "bye -> bye"),
        (PIPELINE.replace("input.name", "nodes.nobody.output"), "nodes.nobody"),
        (PIPELINE + "nodes: {}\n", "the key `nodes` is used twice"),
        ("- 1\n", "a pipeline is a mapping"),
    ],
)
def test_a_bad_pipeline_is_one_line_with_the_field_and_exit_code_2(
    text: str, said: str, tmp_path: Path
) -> None:
    done = hocket("pipeline", "validate", "-", home=tmp_path, given=text)

    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_pipeline_that_is_shown_can_be_applied_again_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = yaml.safe_load(PIPELINE) | {"description": "co\u00adop \u202eleft\u202c \u200b"}

    class Api:
        def get(self, _: str, **__: object) -> dict[str, object]:
            return {"spec": spec, "version": 1, "versions": [1]}

    target = SimpleNamespace(api=Api)
    monkeypatch.setattr("hocket.cli.commands.pipelines.pipeline.target_of", lambda _: target)

    shown = CliRunner().invoke(app, ["pipeline", "show", "greet"])

    assert shown.exit_code == 0
    assert yaml.safe_load(shown.stdout)["description"] == spec["description"]
    assert "\u202e" not in shown.stdout


@pytest.mark.parametrize("name", ["reader", "team: sales", "yes", "42", "1e3", "#1", "- a", "'\""])
def test_a_gateway_reads_the_entry_of_a_key_as_it_was_made(name: str) -> None:
    words = ["gateway", "key", "--tenant", "42", "--", name]
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 0
    made = done.stdout.splitlines()[0].split()[-1]
    key = parse_access(parse_document(done.stdout)["access"], {}).key(made)
    assert (key.name, key.tenant) == (name, "42")
    assert yaml.safe_load(done.stdout)["access"]["keys"][0]["name"] == name


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", "\x1b[2J", "", " ", "os.environ/KEY"])
def test_a_name_that_no_gateway_takes_is_refused(name: str) -> None:
    for more in ((), ("--json",)):
        done = CliRunner().invoke(app, ["gateway", "key", name, *more])
        assert done.stdout == ""
        assert isinstance(done.exception, InvalidInput)
        assert done.exception.fields["field"] == "NAME"


def test_a_missing_file_is_exit_code_2_and_no_traceback(tmp_path: Path) -> None:
    done = hocket("pipeline", "apply", str(tmp_path / "none.yaml"), home=tmp_path)

    assert done.returncode == 2
    assert "cannot be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("cost",), ("dlq", "list"), ("run", "greet"), ("pipeline", "list")],
)
def test_without_a_platform_a_command_says_how_to_start_one(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = hocket(*command, home=tmp_path)

    assert done.returncode == 1
    assert "Start one with `hocket up`" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--api", "http://127.0.0.1:9", "runs", "list"), "The API at http://127.0.0.1:9"),
        (("--nats", "nats://127.0.0.1:9", "run", "greet"), "The NATS server at nats://127.0.0.1:9"),
    ],
)
def test_a_server_that_does_not_answer_is_named(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = hocket(*options, home=tmp_path)

    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_imported_workflow_can_be_validated(tmp_path: Path) -> None:
    workflow = tmp_path / "chain.json.gz"
    tasks = [{"id": "a b", "parents": []}, {"id": "c", "parents": ["a b"]}]
    executed = [{"id": "a b", "runtimeInSeconds": 3}, {"id": "c", "runtimeInSeconds": 1.5}]
    found = {"specification": {"tasks": tasks}, "execution": {"tasks": executed}}
    document = {"name": "my chain", "schemaVersion": "1.5", "workflow": found}
    workflow.write_bytes(gzip.compress(json.dumps(document).encode()))

    done = hocket("import", "wfformat", str(workflow), "--scale", "0.1", home=tmp_path)
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["nodes"]["c"]["with"] == {"task": "c", "seconds": 0.15}
    done = hocket("pipeline", "validate", "-", home=tmp_path, given=done.stdout)
    assert done.stdout == "pipeline my_chain is valid: 2 nodes\n"


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"{}", "`schemaVersion` is not valid: it is missing"),
        (b"<x/>", "it is not JSON"),
        (b"\x1f\x8b broken", "cannot be decompressed"),
    ],
)
def test_a_workflow_that_cannot_be_imported_is_one_line_and_exit_code_2(
    packed: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "workflow"
    file.write_bytes(packed)
    done = hocket("import", "wfformat", str(file), home=tmp_path)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_input_is_an_object_with_single_fields_on_top() -> None:
    assert task_input('{"a": 1, "b": 2}', ["b=3", "c=some text", 'd=["x"]', "e="]) == {
        "a": 1,
        "b": 3,
        "c": "some text",
        "d": ["x"],
        "e": "",
    }


def test_input_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"question": "Why?"}', "utf-8")

    assert task_input(f"@{file}", []) == {"question": "Why?"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "64 levels"),
        ("1" * 5_000, "1000 digits"),
        ("NaN", "NaN"),
        ("1e400", "finite"),
        ('{"a": 1, "a": 2}', "twice"),
        ('"\\ud800"', "surrogate"),
        ("not text: \udcff", "surrogate"),
        ("a\x00b", "U+0000"),
    ],
)
def test_a_pair_that_cannot_be_carried_is_refused_by_its_key(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        task_input(None, ["v=1", f"w={text}"])

    assert refused.value.fields["field"].startswith("-i w")
    assert reason in refused.value.fields["reason"]


@pytest.mark.parametrize(
    ("given", "pairs", "field"),
    [("[1]", [], "--input"), ("{", [], "--input"), (None, ["a"], "-i"), (None, ["=1"], "-i")],
)
def test_input_that_is_no_object_is_refused_with_its_option(
    given: str | None, pairs: list[str], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        task_input(given, pairs)

    assert refused.value.fields["field"] == field
