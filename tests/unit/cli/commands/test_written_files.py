"""Files that commands write: what is there stays if there is nothing to write, and what cannot be
written is told."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hocket.testing.recording import FORMAT, RecordedAnswer, RecordedCall, Recording
from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, refusal, scripted_api


def hocket(home: Path, *arguments: str) -> Any:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    return run_hocket(*arguments, env=env, folder=home)


def refused(_asked: str, _body: Any) -> Answer:
    return refusal(503, "database_unavailable", "Postgres is away.")


def exported(_asked: str, _body: Any) -> Answer:
    return 200, b'{"run_id": "r"}\n'


def test_an_earlier_export_is_kept_if_the_api_refuses(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text("earlier\n")
    with scripted_api(refused) as api:
        done = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", str(file))
    assert (done.returncode, file.read_text()) == (1, "earlier\n")
    assert "Postgres is away." in done.stderr

    with scripted_api(exported, Content_Type="application/x-ndjson") as api:
        done = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", str(file))
    assert (done.returncode, file.read_text()) == (0, '{"run_id": "r"}\n')


def test_an_earlier_export_is_kept_if_the_stream_breaks(tmp_path: Path) -> None:
    file, link = tmp_path / "runs.jsonl", tmp_path / "latest.jsonl"
    file.write_text("earlier\n")
    file.chmod(0o600)
    link.symlink_to(file)
    typed = {"Content_Type": "application/x-ndjson"}
    for to in (file, tmp_path / "new.jsonl"):
        with scripted_api(exported, cut_by=1, **typed) as api:
            done = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", str(to))
        assert (done.returncode, file.read_text()) == (1, "earlier\n")
    assert sorted(one.name for one in tmp_path.glob("*.*")) == ["latest.jsonl", "runs.jsonl"]

    with scripted_api(exported, **typed) as api:
        done = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", str(link))
    assert (done.returncode, file.read_text(), link.is_symlink()) == (0, '{"run_id": "r"}\n', True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    typed = {"Content_Type": "application/x-ndjson"}
    with (
        scripted_api(exported, **typed) as api,
        subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader,
    ):
        done = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", str(pipe))
        read, _ = reader.communicate(timeout=30)
        out = hocket(tmp_path, "--api", api.url, "runs", "export", "--to", "/dev/stdout")
    assert (done.returncode, read) == (0, '{"run_id": "r"}\n')
    assert (out.returncode, out.stdout) == (0, '{"run_id": "r"}\n')
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def recorded(to: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Record a run with one answer into a file; return the exit code."""
    from hocket.cli.__main__ import main

    call = RecordedCall(pipeline="p", step="s", model="m", answer=RecordedAnswer(text="t"))
    recording = Recording(hocket_recording=FORMAT, run_id="r", calls=(call,))
    monkeypatch.setattr("hocket.cli.remote.recording.recording_of", lambda *_: recording)
    arguments = ["hocket", "--api", "http://127.0.0.1:1", "runs", "record", "r", "--to", to]
    monkeypatch.setattr("sys.argv", arguments)

    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_a_recording_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = str(tmp_path / "none" / "run.json")
    code = recorded(to, monkeypatch)
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert told.err.startswith(f"Error: `{to}` cannot be written: No such file or directory")


def test_a_recording_that_no_test_could_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    file.write_text("earlier\n")
    monkeypatch.setattr("hocket.testing.recording.MAX_FILE_BYTES", 100)
    assert recorded(str(file), monkeypatch) == 2
    assert file.read_text() == "earlier\n"
    assert "a test reads at most 100" in capsys.readouterr().err


def test_a_time_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    done = hocket(
        tmp_path, "--api", "http://127.0.0.1:1", "runs", "export", "--since", "0001-01-01"
    )
    assert done.returncode == 2
    assert "0001-01-01" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("media_type", "cut_by"), [("text/html", 0), ("application/x-ndjson", 1)], ids=["page", "cut"]
)
def test_a_page_or_half_of_an_export_is_no_export(
    tmp_path: Path, media_type: str, cut_by: int
) -> None:
    with scripted_api(exported, Content_Type=media_type, cut_by=cut_by) as api:
        done = hocket(tmp_path, "--api", api.url, "runs", "export")
    assert done.returncode == 1
    assert f"The API at {api.url} does not answer" in done.stderr
