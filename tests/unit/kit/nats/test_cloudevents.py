"""The identity of a task: the key that its publisher gave, and the header that holds it."""

import pytest

from hocket.kit.nats.cloudevents import KEY_SEPARATOR, key_header, task_identity

EVENT = {"ce-source": "shop", "ce-id": "77"}


@pytest.mark.parametrize(
    ("headers", "key", "named"),
    [
        ({"Hocket-Idempotency-Key": "k", **EVENT, "Nats-Msg-Id": "m"}, "k", "Hocket-Idempotency-Key"),
        ({**EVENT, "Nats-Msg-Id": "m"}, f"shop{KEY_SEPARATOR}77", "ce-id"),
        ({"ce-id": "77", "Nats-Msg-Id": "m"}, "m", "Nats-Msg-Id"),
        ({"ce-source": "", "ce-id": "77", "Nats-Msg-Id": "m"}, "m", "Nats-Msg-Id"),
        ({"ce-source": "shop", "Nats-Msg-Id": "m"}, "m", "Nats-Msg-Id"),
        ({"ce-source": "shop", "ce-id": "", "Nats-Msg-Id": "m"}, "m", "Nats-Msg-Id"),
    ],
)  # fmt: skip
def test_an_events_id_is_a_key_only_with_its_source(
    headers: dict[str, str], key: str, named: str
) -> None:
    assert task_identity(headers, 1, 2) == (key, True)
    assert key_header(headers) == named


@pytest.mark.parametrize("headers", [None, {}, {"ce-id": "77"}, {"Nats-Msg-Id": ""}])
def test_tasks_without_a_key_are_different_runs(headers: dict[str, str] | None) -> None:
    first, second = task_identity(headers, 1, 2), task_identity(headers, 2, 2)
    assert not first.user_given
    assert first != second


def test_a_key_is_one_in_any_case() -> None:
    assert task_identity({"hocket-idempotency-key": "k", "Nats-Msg-Id": "m"}, 1, 2) == ("k", True)
    both = {"hocket-idempotency-key": "other", "Hocket-Idempotency-Key": "k"}
    assert task_identity(both, 1, 2) == ("k", True)
