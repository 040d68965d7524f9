"""A short version of the conformance suite: the SDK passes, and a planted fault does not. All of it:
`make conformance`."""

import asyncio

import pytest

from conformance.faults import CAUGHT_BY, FASTSTREAM, FOLDER, RAW, SDK, faults_of
from hocket.cli.conformance.checks import CHECKS
from hocket.cli.conformance.journal_checks import CALL_CHECKS, JOURNAL_CHECKS, WAIT_CHECKS
from hocket.cli.conformance.play import play

QUICK = ("answers", "cancels", "believes-no-stranger", "leaves-late", "blobs", "bundles")


async def test_the_sdk_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    found = await play(SDK, (*QUICK, "journal"))
    assert [fault for fault in found.values() if fault] == []


@pytest.mark.long
async def test_the_sdk_faststream_and_a_worker_written_from_the_protocol_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    with_journals = (*QUICK, "journal", *WAIT_CHECKS, *CALL_CHECKS)
    found = await asyncio.gather(
        play(SDK, with_journals), play(FASTSTREAM, with_journals), play(RAW, QUICK)
    )
    assert [fault for one in found for fault in one.values() if fault] == []


async def test_a_worker_without_journals_is_told_apart() -> None:
    found = await play(RAW, [*JOURNAL_CHECKS, *WAIT_CHECKS, *CALL_CHECKS])
    assert all(found.values()), found


@pytest.mark.parametrize(
    "fault",
    [
        "no-capability",
        "claims-bundles",
        pytest.param("wrong-attempt", marks=pytest.mark.long),
        pytest.param("ack-first", marks=pytest.mark.long),
    ],
)
async def test_a_planted_fault_is_caught(fault: str) -> None:
    assert await faults_of(fault) is not None


def test_faults_are_planted_for_all_checks_but_few() -> None:
    unplanted = {"describes", "cancels-before", "redelivery"}
    assert set(CHECKS) == set(CAUGHT_BY.values()) | unplanted
    assert len(CAUGHT_BY) >= 10
