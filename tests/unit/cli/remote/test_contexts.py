"""Contexts: which platform a command talks to, which key it shows there, and files that are not safe."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.remote import contexts, identity_provider
from hocket.cli.remote.contexts import (
    Context,
    Contexts,
    change_contexts,
    contexts_file,
    contexts_locked,
    read_contexts,
    write_contexts,
)
from hocket.cli.remote.identity_provider import ProviderClient, ProviderTokens
from hocket.cli.remote.kept_token import kept_key
from hocket.cli.remote.target import Target
from hocket.cli.terminal.errors import ContextsUnreadable, ContextsUnsafe, ContextUnknown
from hocket.schemas.errors import InvalidInput
from support.shared.scripted_api import Answer, as_json, scripted_api

URL = "https://hocket.example.com"
MALFORMED = [
    "https://ho st", "https://a\nb.example", "https://ex\tample.com", " https://h", "https://h ",
    "https://h/ a", "https://h/\x00", "https://%", "https://-", "https://.", "https://a..b",
    "https://*", "https://<h>", "https://\u202eh", "https://\ud800", "https://\xe4.example",
    "https://[v1.a]", "https://h?", "https://h#", "https://h\\@i", "https://" + "a" * 64,
    "https://h/" + "a" * 5_000, "https://[::1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HOCKET_API_KEY", raising=False)
    return tmp_path


def kept() -> None:
    known = Contexts().put("a", Context(URL, "acme", "key-a")).put("b", Context(f"{URL}/b"))
    write_contexts(Contexts("a", known.named))


def test_what_is_named_comes_before_the_current_context(tmp_path: Path) -> None:
    kept()
    current = Target(tmp_path)
    assert (current.api_url, current.tenant, current.key) == (URL, "acme", "key-a")
    assert Target(tmp_path, named_tenant="other").tenant == "other"
    other = Target(tmp_path, named_context="b")
    assert (other.api_url, other.tenant, other.key) == (f"{URL}/b", "default", None)
    address = Target(tmp_path, named_api="http://127.0.0.1:1", named_context="a")
    assert (address.api_url, address.key) == ("http://127.0.0.1:1", None), "a key goes nowhere else"
    assert Target(tmp_path, is_folder_named=True).api_url is None
    assert Target(tmp_path, named_context="local").api_url is None
    assert current.known_nats is None, "nothing of this machine is mixed in"
    with pytest.raises(ContextUnknown, match="hocket context list"):
        _ = Target(tmp_path, named_context="c").api_url


def test_a_key_of_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept()
    monkeypatch.setenv("HOCKET_API_KEY", "key-e")
    assert Target(tmp_path).key == "key-e"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_use_is_refused(mode: int) -> None:
    kept()
    contexts_file().chmod(mode)
    with pytest.raises(ContextsUnsafe, match="chmod 600"):
        read_contexts()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"contexts": []}', '{"contexts": {"a": {}}}', "[" * 100_000),
        '{"contexts": {"a": {"api_url": 1}}}',
    ],
)
def test_a_broken_file_is_named(text: str) -> None:
    kept()
    contexts_file().write_text(text)
    with pytest.raises(ContextsUnreadable, match=r"contexts\.json"):
        read_contexts()


@pytest.mark.parametrize(
    ("name", "url", "field"),
    [
        *(("local", URL, "name"), ("../a", URL, "name"), ("", URL, "name"), ("a\n", URL, "name")),
        ("a", "http://hocket.example.com", "url"),
        ("a", "https://user:secret@hocket.example.com", "url"),
        ("a", "hocket.example.com", "url"),
        ("a", "https://h:x", "url"),
        ("a", "https://h?x=1", "url"),
        *(("a", url, "url") for url in MALFORMED),
    ],
)
def test_names_and_addresses_are_checked(name: str, url: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Contexts().put(name, Context(url))
    assert refused.value.fields["field"] == field


def test_a_removed_context_leaves_the_local_one() -> None:
    kept()
    left = read_contexts().without("a")
    assert (left.current, list(left.named)) == ("local", ["b"])
    write_contexts(left)
    assert "key-a" not in json.dumps(json.loads(contexts_file().read_text()))


@pytest.mark.parametrize(
    "url",
    [
        "https://h.", "https://a_b.example:8443/x/y", "HTTPS://H", "https://[::1]:8", "https://10.0.0.1",
        "http://localhost:8080", "http://127.0.0.1", "https://xn--4ca.example", "https://h/%20",
    ],
)  # fmt: skip
def test_an_address_of_a_platform_is_taken(url: str) -> None:
    assert Contexts().put("a", Context(url)).named["a"].api_url == url


@pytest.mark.parametrize(("given", "said"), [("'\\377\\376h'", "no key has"), ("''", "is empty")])
def test_a_key_that_is_no_text_is_refused_in_a_line(home: Path, given: str, said: str) -> None:
    kept()
    command = f"printf {given} | {sys.executable} -m hocket.cli login"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_a_closed_standard_input_is_told(home: Path) -> None:
    command = f"{sys.executable} -m hocket.cli pipeline validate - <&-"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard input is closed" in done.stderr


def test_a_home_that_is_no_folder_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "/dev/null")
    assert read_contexts() == Contexts()
    with pytest.raises(ContextsUnreadable, match="Not a directory"):
        kept()


def test_what_changes_while_somebody_signs_in_is_kept() -> None:
    """Another terminal signs in elsewhere, and makes that the current context."""
    kept()

    def own_key(_asked: str, _body: Any) -> Answer:
        named = read_contexts().put("b", Context(f"{URL}/b", key="key-b")).named
        write_contexts(Contexts("b", named))
        return as_json(200, {"name": "ann", "role": "admin", "tenant": None})

    with scripted_api(own_key) as api:
        write_contexts(Contexts("a", Contexts().put("a", Context(api.url)).named))
        done = CliRunner().invoke(app, ["login"], input="key-new")
    assert done.exit_code == 0, done.output
    found = read_contexts()
    assert (found.current, found.named["a"].key, found.named["b"].key) == ("b", "key-new", "key-b")


def expiring(name: str = "a") -> Context:
    """Keep a context whose token ends now; return it."""
    known = Context(
        f"{URL}/{name}",
        key=f"token-{name}",
        issuer="https://idp.example.com",
        client_id="cli",
        refresh_token="refresh-1",
        expires_at=str(time.time()),
    )
    write_contexts(replace(read_contexts().put(name, known), current=name))
    return known


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The refresh tokens that were shown to the provider, which takes each of them once."""
    asked: list[str] = []

    def renewed(_client: ProviderClient, refresh_token: str) -> ProviderTokens:
        asked.append(refresh_token)
        assert asked.count(refresh_token) == 1
        time.sleep(0.1)  # a second command comes while the provider is asked
        if read_contexts().current == "a":
            write_contexts(replace(read_contexts(), current="b"))
        return ProviderTokens("token-new", time.time() + 3_600, "refresh-2")

    monkeypatch.setattr(identity_provider, "renewed", renewed)
    return asked


def test_a_renewed_token_goes_to_the_context_that_was_chosen(
    tmp_path: Path, renewals: list[str]
) -> None:
    """Another context becomes the current one while the provider is asked."""
    expiring("b")
    expiring("a")
    target = Target(tmp_path)
    assert (target.api_url, target.key) == (f"{URL}/a", "token-new")
    found = read_contexts()
    assert (found.current, found.named["b"].key) == ("b", "token-b")
    assert found.named["a"].refresh_token == "refresh-2"
    assert target.key == "token-new"
    assert renewals == ["refresh-1"]


def test_a_token_is_renewed_by_one_command_at_a_time(tmp_path: Path, renewals: list[str]) -> None:
    expiring()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Target(tmp_path, named_context="a").key, range(8)))
    assert found == ["token-new"] * 8
    assert renewals == ["refresh-1"]


def test_a_token_is_not_renewed_for_a_context_that_changed(renewals: list[str]) -> None:
    known = expiring()
    write_contexts(read_contexts().put("a", Context(known.api_url, key="key-of-another-login")))
    assert kept_key(known, "a") == "key-of-another-login"
    write_contexts(read_contexts().put("a", Context(f"{URL}/elsewhere", key="key-elsewhere")))
    assert kept_key(known, "a") == "token-a", "a key goes nowhere but to its own platform"
    assert renewals == []


def test_a_command_does_not_wait_for_ever_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    monkeypatch.setattr(contexts, "LOCK_WAIT_S", 0.2)
    with contexts_locked(), pytest.raises(ContextsUnreadable, match="another command"):
        change_contexts(lambda found: found)
    change_contexts(lambda found: found.without("a"))
    assert list(read_contexts().named) == ["b"]


def test_the_list_does_not_say_that_this_machine_is_signed_in() -> None:
    write_contexts(Contexts().put("a", Context(URL)).put("b", Context(URL, None, "key-b")))
    told = CliRunner().invoke(app, ["context", "list"])
    signed = {line.split()[-1] for line in told.output.splitlines() if "local" in line}
    assert signed == {"-"}
    assert [line.split()[-1] for line in told.output.splitlines()[-2:]] == ["no", "yes"]
