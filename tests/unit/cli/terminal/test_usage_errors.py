"""What a command says about an argument that it cannot use: what is wrong, and what it may be."""

import re
from pathlib import Path

import pytest

from support.shared.commands import run_hocket

JARGON = re.compile(r"Value error|Input should|String should|unable to parse|pattern")


def refused(home: Path, *arguments: str) -> str:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    done = run_hocket(*arguments, env=env)
    assert done.returncode == 2, done.stderr
    assert JARGON.search(done.stderr) is None
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run p --deadline-ms -1", "'--deadline-ms': it is `-1`. Use 1 or more."),
        ("run p --class urgent", "'urgent' is not one of 'interactive', 'standard', 'batch'."),
        ("up --workers 1.5", "'--workers': `1.5` is not a whole number. Use a whole number."),
        ("up --log-level loud", "'--log-level': 'loud' is not one of 'debug', 'info',"),
        ("dlq drop 1 x", "'seqs': `x` is not a whole number."),
        ("runs list --hours x", "'--hours': `x` is not a number. Use a number."),
        (
            "runs export --since yesterday",
            "'--since': there is no such time. Write one such as 2026-",
        ),
        ("config check nope.yaml", "'file': file 'nope.yaml' does not exist."),
        ("mcp --port 9000", "--port applies to --http; add --http"),
        ("mcp --host 0.0.0.0", "--host applies to --http; add --http"),
        ("run p --label acme", "`--label` is not valid: `acme` is not `key=value`. Write --label "),
        ("up --types pyton", "Did you mean `python`? Use one of: planning, retrieval,"),
    ],
)
def test_an_argument_is_told_what_it_may_be(tmp_path: Path, command: str, said: str) -> None:
    assert said in refused(tmp_path, *command.split())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("schedules pause", ("--if-revision", "--revision")),
        ("webhooks delete", ("--if-revision", "--revision")),
        ("runs export", ("--to", "--output", "-o")),
        ("runs record", ("--to", "--output", "-o")),
    ],
)
def test_an_option_has_the_name_that_it_has_at_other_commands_and_its_own(
    tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    told = run_hocket(*command.split(), "--help", env=env).stdout
    assert set(options) <= set(re.split(r"[\s,]+", told))


def test_the_line_for_editors_can_be_copied(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "80"}
    told = run_hocket("schema", "--help", env=env).stdout
    assert "  # yaml-language-server: $schema=pipeline.schema.json\n" in told
