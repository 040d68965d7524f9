"""Hostile values in the configuration of processes: each environment variable and each field of the
worker's part of the file takes a value as it stands, or is refused by its name with a cure, and a
process that is refused says so in a line and ends. No error shows what a variable holds."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.kit.process import config
from hocket.kit.process.settings import Settings, read, variable_of
from hocket.schemas.errors import InvalidInput
from hocket.workers.configuration import CONCURRENCY, Configuration, parse
from support.values.hostile_values import CARRIED, REFUSED
from support.values.values_rig import UNSAFE

BOUND_S = 60
MARK = "s3cr3t"
"""In values that are refused, so that it is seen where one is shown."""
TEXTS: tuple[bytes, ...] = (
    b"", b" ", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m", "\u202ex".encode(), b"a\nb", b"x" * 5_000,
    b"9" * 5_000, b"-1", b"0", b"1e400", b"nan", b"inf", b"1e-400", b"0x10", b"1_000",
    "\u0661".encode(), b"maybe", b"{{ 7*7 }}", b"'; DROP TABLE hocket.run; --", b"{", b"[" * 100_000,
    b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"a": 1e400}', b'{"a\\u0000": 1}', b'{"": 1}', b"a b",
    b"nats://[::1", b"http://", b"postgresql://u:%s@h:99999/d" % MARK.encode(),
    b"mysql://u:%s@h/d" % MARK.encode(), b"postgresql://u:%s@\xff/d" % MARK.encode(), b"a,,b", b",",
)  # fmt: skip
TAKEN = {
    "NATS_URL": b"nats://a:4222,nats://b:4222",
    "DATABASE_URL": b"postgresql://u:p%20w@[::1]:5432,h2:5433/d?sslmode=prefer",
    "HOCKET_CONFIG": "/tmp/\u00e4 b.yaml".encode(),
    "HOCKET_OTLP_ENDPOINT": b"http://collector:4318/v1/traces",
    "HOCKET_TENANT_WEIGHTS": '{"\u00e4": 3, "b": 0.5}'.encode(),
    "HOCKET_CAPABILITY_KEY": b"k" * 32,
    "HOCKET_HEALTH_HOST": b"::1",
    "HOCKET_ALLOWED_HOSTS": b"a.example, *.b.example",
    "HOCKET_MAX_RUNS": b"7",
    "HOCKET_ASKS_FOR_SEALS": b"false",
}


@pytest.fixture
def alone() -> Iterator[None]:
    """No variable of ours is set but those of the test."""
    before = dict(os.environb)
    for name in before:
        if name.startswith(b"HOCKET_") or name in (b"NATS_URL", b"DATABASE_URL"):
            del os.environb[name]
    yield
    os.environb.clear()
    os.environb.update(before)


def setting(variable: str, text: bytes) -> Settings | InvalidInput:
    os.environb[variable.encode()] = text
    try:
        return read()
    except InvalidInput as error:
        return error
    finally:
        del os.environb[variable.encode()]


@pytest.mark.parametrize("field", Settings.model_fields)
def test_a_variable_is_taken_or_refused_by_its_name(field: str, alone: None) -> None:
    variable = variable_of(field)
    refused = 0
    for text in TEXTS:
        found = setting(variable, text)
        if isinstance(found, Settings):
            continue
        refused += 1
        said = str(found)
        assert found.fields["field"].startswith(variable), (text, said)
        assert "docs/reference/settings.md" in said, (text, said)
        assert not UNSAFE.search(said), (text, said)
        assert MARK not in said, (text, said)
        assert len(said) < 1_000, (text, said)
        assert "pydantic" not in said, (text, said)
    assert refused >= 3
    if variable in TAKEN:
        assert isinstance(setting(variable, TAKEN[variable]), Settings)


def test_what_is_taken_reads_as_it_was_set(alone: None) -> None:
    for variable, text in TAKEN.items():
        os.environb[variable.encode()] = text
    settings = read()
    assert settings.nats_url == "nats://a:4222,nats://b:4222"
    assert settings.database_url == (
        "postgresql://u:p%20w@[::1]:5432,h2:5433/d?sslmode=prefer&target_session_attrs=read-write"
    )
    assert settings.config == Path("/tmp/\u00e4 b.yaml")
    assert settings.tenant_weights == {"\u00e4": 3, "b": 0.5}
    assert settings.allowed_hosts == ("a.example", "*.b.example")
    assert (settings.max_runs, settings.asks_for_seals) == (7, False)
    assert "k" * 32 not in repr(settings)
    os.environb[b"HOCKET_OTLP_ENDPOINT"] = os.environb[b"HOCKET_CONFIG"] = b""
    assert (read().otlp_endpoint, read().config) == (None, None)


FIELDS: Mapping[str, Any] = {
    **{f"workers.{name}": name for name in Configuration.model_fields["workers"].default.__dict__},
    "node_types.python.concurrency": 1,
    "node_types.python.modules": ["a"],
    "blobs.store": "file",
    "blobs.folder": "x",
    "blobs.max_mib": 1,
    "workers.unknown": 1,
    "node_types.nope": {},
    "databases.a": {},
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_the_file_is_taken_by_a_worker_or_refused_by_its_place(
    field: str, tmp_path: Path
) -> None:
    file = tmp_path / "hocket.yaml"
    for value in (*CARRIED, *REFUSED):
        text = value.text
        if value.refused is None:
            text = json.dumps(value.expected).encode()  # it is YAML, too, unlike some JSON texts
        inner = text
        for part in reversed(field.split(".")):
            inner = b'{"%s": %s}' % (part.encode(), inner)
        file.write_bytes(inner)
        refused = refusal(file)
        if refused is not None:
            said = str(refused)
            assert field.split(".")[0] in said or str(file) in said, (value.name, said)
            assert refused.fields["cure"], (value.name, said)
            assert not UNSAFE.search(said), (value.name, said)
            assert len(said) < 2_000, (value.name, said)


def refusal(file: Path) -> InvalidInput | None:
    """Return why a worker does not take a file; None where it does, and knows its slots."""
    try:
        configuration = parse(config.load(file))
    except InvalidInput as error:
        return error
    assert set(configuration.slots(list(CONCURRENCY))) == set(CONCURRENCY)
    return None


async def said_by(service: str, **environment: str) -> tuple[int | None, str]:
    """Start a process as a supervisor would; return its exit code and what it said."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOCKET_") and name not in ("NATS_URL", "DATABASE_URL")
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"hocket.{service}"),
        env={**kept, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(BOUND_S):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.timeout(120)
async def test_a_process_with_a_wrong_setting_names_it_in_a_line_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "hocket.yaml"
    file.write_text(yaml.safe_dump({"workers": {"ack_wait_s": MARK}}))
    url = f"mysql://u:{MARK}@h/d"
    wrong = [
        ("coordinator", "DATABASE_URL", {"DATABASE_URL": url}),
        ("workers", "workers.ack_wait_s", {"HOCKET_CONFIG": str(file)}),
        ("ledger", "HOCKET_DATA_DIR", {"HOCKET_DATA_DIR": "/proc/nope"}),
    ]
    found = await asyncio.gather(
        *(
            said_by(service, **{"HOCKET_DATA_DIR": str(tmp_path), **env})
            for service, _, env in wrong
        )
    )
    for (service, name, _), (code, said) in zip(wrong, found, strict=True):
        assert code == 1, (service, said)
        assert said.count("\n") == 1, (service, said)
        assert name in said, (service, said)
        assert MARK not in said, (service, said)
