"""Whose a message is, read from small and large ones alike."""

import json
from typing import Any

import pytest
from pydantic_core import from_json

from hocket.kit.nats import dead_letters

NAMED = {"run_id": "r1", "step": "draft", "attempt": 2, "tenant": "acme", "type": ""}
LARGE: dict[str, Any] = {"input": [[{}]] * 120_000}


@pytest.fixture(autouse=True)
def _only_short_values_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(content: bytes) -> Any:
        assert len(content) <= dead_letters.LONG_BYTES
        return from_json(content)

    monkeypatch.setattr(dead_letters, "from_json", read)


@pytest.mark.parametrize("more", [{}, LARGE], ids=["small", "large"])
def test_a_message_says_whose_it_is_however_large_it_is(more: dict[str, Any]) -> None:
    payload = json.dumps({**more, **NAMED}).encode()
    expected = {"run_id": "r1", "step": "draft", "attempt": 2, "tenant": "acme"}
    assert dead_letters._context("step", "hocket.step.x", payload) == expected
    assert dead_letters.subject_of("log", "hocket.log.1", payload) == "hocket.dlq.log.acme"


@pytest.mark.parametrize("more", [{}, LARGE], ids=["small", "large"])
def test_a_usage_record_belongs_to_the_tenant_of_its_attribution(more: dict[str, Any]) -> None:
    payload = json.dumps({"attribution": {"tenant": "acme"}, "tenant": "globex", **more}).encode()
    assert dead_letters.subject_of("usage", "hocket.usage", payload) == "hocket.dlq.usage.acme"


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 200_000,
        b"[" + b"1," * 100_000 + b"1]",
        b'{"run_id": "r1", "input": ' + b"[" * 100_000,
        b'{"run_id": "' + b"r" * 100_000 + b'"}',
        b"\xff" * 100_000,
    ],
)
def test_a_large_message_that_cannot_be_read_names_nobody(payload: bytes) -> None:
    assert dead_letters._context("step", "hocket.step.x", payload) == {}
    assert dead_letters.subject_of("log", "x", payload).endswith(dead_letters.subjects.UNATTRIBUTED)
