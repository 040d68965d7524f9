"""Which platform's NATS and database a command uses."""

import os
from pathlib import Path

import pytest

from hocket.cli.local import admin_key
from hocket.cli.remote.contexts import Context, Contexts, write_contexts
from hocket.cli.remote.target import Target
from hocket.cli.terminal.errors import PlatformNotFound, PlatformPartUnknown
from hocket.kit.process.platform_facts import PlatformFacts, write_facts
from hocket.schemas.errors import InvalidInput

API = "http://127.0.0.1:8080"
KEY = "hk_a_b"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a platform that runs."""
    for name in ("DATABASE_URL", "HOCKET_DATABASE_URL", "HOCKET_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    facts = PlatformFacts(
        pid=os.getpid(),
        version="0",
        data_dir=str(tmp_path),
        nats_url="nats://here:4222",
        database_url="postgresql://here/hocket",
        api_url=API,
        processes={},
    )
    write_facts(tmp_path, facts)
    (tmp_path / admin_key.FILE).write_text(KEY)
    return tmp_path


@pytest.mark.parametrize("api", [None, API, f"{API}/", "http://localhost:8080"])
def test_the_platform_of_the_folder_is_used_whole(folder: Path, api: str | None) -> None:
    target = Target(folder, named_api=api, is_folder_named=True)
    assert target.nats_url == "nats://here:4222"
    assert target.database_url == "postgresql://here/hocket"
    assert (target.api_url, target.key) == (API, KEY)


@pytest.mark.parametrize(
    "api",
    [
        "https://hocket.example.com",
        "http://127.0.0.1:9",
        f"{API}/other",
        "https://localhost:8080",
        "http://[x",
    ],
)
def test_nothing_of_the_folders_platform_is_used_when_another_is_named(
    folder: Path, api: str
) -> None:
    target = Target(folder, named_api=api, is_folder_named=True)
    assert target.key is None
    with pytest.raises(PlatformPartUnknown, match="NATS_URL"):
        _ = target.nats_url
    with pytest.raises(PlatformPartUnknown, match="DATABASE_URL"):
        _ = target.database_url
    assert Target(folder, named_api=api, named_nats="nats://there").nats_url == "nats://there"


def test_a_context_says_what_is_not_known_of_its_platform(folder: Path) -> None:
    target = Target(folder)
    target.__dict__["context"] = Context("https://hocket.example.com")
    with pytest.raises(PlatformPartUnknown, match=r"hocket\.example\.com"):
        _ = target.nats_url


def test_nats_and_database_of_two_platforms_are_not_taken_for_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ("nats://here:4222", "postgresql://here/hocket"), ("nats://b", "postgresql://b/b")
    assert Target(folder, is_folder_named=True).servers() == here
    with pytest.raises(InvalidInput, match="`DATABASE_URL`"):
        Target(folder, named_nats=there[0], is_folder_named=True).servers()
    monkeypatch.setenv("DATABASE_URL", there[1])
    with pytest.raises(InvalidInput, match="`NATS_URL`"):
        Target(folder, is_folder_named=True).servers()
    assert Target(folder, named_nats=there[0], is_folder_named=True).servers() == there


def test_where_nothing_runs_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlatformNotFound, match="hocket up"):
        _ = Target(tmp_path, is_folder_named=True).nats_url


def test_a_command_that_runs_for_long_sees_a_renewed_key_of_its_platform(folder: Path) -> None:
    former, staging = Context("https://a.example", key="hk_former"), Context("https://b.example")
    write_contexts(Contexts("a", {"a": former, "b": staging}))
    target = Target(folder).anew()
    assert target.api().headers["Authorization"] == "Bearer hk_former"
    # what `hocket login` and the renewal of a token do, and `hocket context use`
    write_contexts(Contexts("b", {"a": Context("https://a.example", key="hk_new"), "b": staging}))
    api = target.anew().api()
    assert api.url == "https://a.example"
    assert api.headers["Authorization"] == "Bearer hk_new"


def test_what_runs_for_long_on_this_machine_stays_with_this_machine(folder: Path) -> None:
    target = Target(folder).anew()
    write_contexts(Contexts("a", {"a": Context("https://a.example", key="hk_a")}))
    assert target.anew().api_url == API
    assert Target(folder, is_folder_named=True).anew().api_url == API
    assert Target(folder, named_api=f"{API}/x").anew().api_url == f"{API}/x"
