"""`hocket doctor` compares the streams with those that Hocket makes."""

from typing import Any

import pytest

from hocket.cli.doctor.findings import Verdict
from hocket.cli.doctor.nats.streams import Streams, findings_of
from hocket.kit.nats.streams import stream_configs


def made(**changed: dict[str, Any]) -> Streams:
    infos = {
        one["name"]: {"config": one | changed.get(one["name"], {}), "state": {"bytes": 0}}
        for one in stream_configs()
    }
    return Streams(infos)


def test_streams_as_hocket_makes_them_are_well() -> None:
    assert [(one.name, one.verdict) for one in findings_of(made(), 1)] == [
        ("jetstream", Verdict.OK),
        ("streams", Verdict.OK),
    ]


@pytest.mark.parametrize("name", ["TASKS", "JOURNALS", "PROBATION", "GUEST_RESULTS"])
def test_a_stream_that_is_missing_is_named(name: str) -> None:
    streams = made()
    del streams.by_name[name]
    found = next(one for one in findings_of(streams, 1) if one.name == "streams")
    assert (found.verdict, found.found) == (Verdict.FAILED, f"missing: {name}")


def test_a_stream_that_others_made_is_named_with_what_differs() -> None:
    """A USAGE that keeps what was acknowledged, or a LOG that is gone with its server's memory."""
    kept = {"retention": "limits", "subjects": ["usage.>"]}
    streams = made(USAGE=kept, LOG={"storage": "memory"})
    (found,) = (one for one in findings_of(streams, 1) if one.verdict is Verdict.FAILED)
    assert found.name == "streams"
    assert "USAGE has subjects usage.>, not hocket.usage" in found.found
    assert "USAGE has retention limits, not workqueue" in found.found
    assert "LOG has storage memory, not file" in found.found
    assert found.cure


def test_tasks_of_an_older_release_may_be_a_work_queue() -> None:
    streams = made(TASKS={"retention": "workqueue"}, TASK_BATCHES={"retention": "workqueue"})
    assert all(one.verdict is Verdict.OK for one in findings_of(streams, 1))
