"""What a worker runs, as its command line and the configuration file say it."""

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.workers.configuration import parse, parse_drain, parse_types
from hocket.workers.sql.errors import TargetInvalid
from hocket.workers.sql.targets import Targets


def test_types_and_queues_are_read_from_one_list() -> None:
    assert parse_types("") == WORKER_TYPES
    assert parse_types("python, llm,python@gpu,python@default") == ("python", "llm", "python@gpu")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("crm.lookup", "it is not a node type of workers"),
        ("python@", "`` is not a queue"),
        ("python@G", "`G` is not a queue"),
    ],
)
def test_what_no_worker_runs_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_types(text)
    assert refused.value.fields["reason"] == reason


def test_each_queue_has_the_slots_of_its_type() -> None:
    configuration = parse({"node_types": {"python": {"concurrency": 5}}})
    assert configuration.slots(("python", "python@gpu", "sql")) == {
        "python": 5,
        "python@gpu": 5,
        "sql": 8,
    }


def test_a_worker_drains_for_up_to_an_hour() -> None:
    assert parse({"workers": {"drain_s": 3_600}}).workers.drain_s == parse_drain("3600") == 3_600


@pytest.mark.parametrize("text", ["3601", "-1", "ten", "", "nan", "inf"])
def test_what_is_no_time_to_drain_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_drain(text)
    assert refused.value.fields["field"] == "drain-s"


def test_the_faults_of_a_databases_settings_are_told_in_words() -> None:
    with pytest.raises(TargetInvalid) as refused:
        Targets({"d": {"url": "postgresql://x", "tables": "sales", "foo": 1}}).check()
    assert "`tables`: it is text, not a list; `foo`: there is no such field" in str(refused.value)
