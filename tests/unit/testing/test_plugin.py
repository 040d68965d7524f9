"""The page on testing pipelines is followed, in a pytest of its own that may reach nothing."""

import re
import subprocess
import sys
from pathlib import Path

from support.places import ROOT

PAGE = ROOT / "docs" / "how-to" / "test-pipelines.md"
FILE = re.compile(r"^```\w+ (\S+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_SERVERS = """
import sys


def refuse(event, _given):
    if event in ("socket.connect", "socket.bind", "subprocess.Popen"):
        raise RuntimeError(f"a play must not need {event}")


sys.addaudithook(refuse)
"""


def run_pytest(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", "-vv"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def written(folder: Path) -> Path:
    files = dict(FILE.findall(PAGE.read_text("utf-8")))
    assert sorted(files) == ["order.yaml", "shop.py", "test_order.py", "test_picture.py"]
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "conftest.py").write_text(NO_SERVERS)
    return folder


def test_the_page_is_followed_without_a_server(tmp_path: Path) -> None:
    done = run_pytest(written(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_test_that_fails_shows_the_trace_of_its_plays(tmp_path: Path) -> None:
    test = written(tmp_path) / "test_order.py"
    test.write_text(test.read_text().replace('"degraded"', '"succeeded"'))
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "hocket play 1" in done.stdout
    assert "300.0 ms  picture: attempt 1 failed: attempt_timeout (timeout)" in done.stdout
