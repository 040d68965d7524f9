"""Answers of something that is not the API: one line says so, whatever they are."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from hocket.cli.__main__ import main
from hocket.cli.remote import api
from hocket.cli.remote.contexts import Context, Contexts, read_contexts, write_contexts
from hocket.cli.terminal import exit_codes
from hocket.cli.terminal.errors import ApiUnreachable

ANSWERS: dict[str, tuple[int, bytes]] = {
    "a page": (200, b"<html>"),
    "deep": (200, b"[" * 200_000),
    "a long number": (200, b'{"a":' + b"9" * 5_000 + b"}"),
    "a list": (200, b"[]"),
    "null": (200, b"null"),
    "empty": (200, b""),
    "a redirect": (302, b""),
    "a deep error": (500, b"[" * 200_000),
}
ODD: dict[str, bytes] = {
    "nothing": b"{}",
    "a null": b'{"runs": null}',
    "text": b'{"runs": "zz"}',
    "numbers": b'{"runs": [1]}',
    "empty objects": b'{"runs": [{}]}',
}


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.removeprefix("/").replace("%20", " ")
        odd = name.partition("/")[0].replace("-", " ")
        status, body = (200, ODD[odd]) if odd in ODD else ANSWERS.get(name, (200, b""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)
        try:
            while name == "slow":
                self.wfile.write(b" ")
                time.sleep(0.02)
        except ConnectionError:
            pass

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_answer_of_the_api_is_told_in_a_line(url: str, name: str) -> None:
    with pytest.raises(ApiUnreachable):
        api.Api(url, "default").get(f"/{name.replace(' ', '%20')}")


@pytest.mark.parametrize("name", ODD)
def test_an_answer_that_is_not_what_a_command_knows_is_told_in_a_line(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["hocket", "--api", f"{url}/{name.replace(' ', '-')}", "runs", "list"]
    )
    monkeypatch.setattr(api, "answered", [])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == exit_codes.FAILED
    assert told.startswith(
        "Error: This release of the command does not understand the answer of the API at "
    )
    assert told.count("\n") == 1


def test_a_sign_in_at_something_else_keeps_no_key(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HOCKET_API_KEY", raising=False)
    write_contexts(Contexts("a", {"a": Context(f"{url}/empty")}))
    monkeypatch.setattr("sys.stdin", StringIO("a-key"))
    monkeypatch.setattr("sys.argv", ["hocket", "login"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == exit_codes.FAILED
    assert told.startswith("Error: ")
    assert "Traceback" not in told
    assert read_contexts().named["a"].key is None


def test_a_fault_of_ours_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "answered", [])
    monkeypatch.setattr("hocket.cli.__main__.app", lambda: {}["x"])
    with pytest.raises(KeyError):
        main()


def test_an_answer_that_never_ends_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "TIMEOUT_S", 0.3)
    with pytest.raises(ApiUnreachable, match="not complete"):
        api.Api(url, "default").get("/slow")
