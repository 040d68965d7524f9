"""`hocket doctor` compares the streams with those that Hocket makes."""

from typing import Any

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


def test_a_stream_that_others_made_is_named_with_what_differs() -> None:
    """A TASKS that keeps what was acknowledged, or that is gone with its server's memory."""
    kept = {"retention": "limits", "subjects": ["tasks.>"]}
    streams = made(TASKS=kept, LOG={"storage": "memory"})
    (found,) = (one for one in findings_of(streams, 1) if one.verdict is Verdict.FAILED)
    assert found.name == "streams"
    assert "TASKS has subjects tasks.>, not hocket.task" in found.found
    assert "TASKS has retention limits, not workqueue" in found.found
    assert found.found.endswith("LOG has storage memory, not file")
    assert found.cure
