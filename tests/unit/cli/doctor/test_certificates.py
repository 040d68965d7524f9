"""Which certificates `hocket doctor` warns of."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hocket.cli.doctor.certificates import Certificate, expiry, ours
from hocket.cli.doctor.findings import Verdict
from support.servers.certificates import Authority

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def certificate(whole_days: float, left_days: float) -> Certificate:
    ends_at = NOW + timedelta(days=left_days)
    return Certificate("nats n1", ends_at - timedelta(days=whole_days), ends_at)


@pytest.mark.parametrize(
    ("whole_days", "left_days", "verdict", "said"),
    [
        (365, 200, Verdict.OK, "nats n1 expires in 200 d"),
        (365, 29, Verdict.NOTE, "nats n1 expires in 29 d"),
        (365, 6.5, Verdict.FAILED, "nats n1 expires in 6 d"),
        (365, -1, Verdict.FAILED, "nats n1 expired on 2026-05-03"),
        (90, 29, Verdict.OK, "nats n1 expires in 29 d"),  # made anew with 30 days left
        (1, 0.3, Verdict.OK, "nats n1 expires in 7 h"),  # made anew each day
        (1, 0.1, Verdict.FAILED, "nats n1 expires in 2 h"),
    ],
)
def test_what_ends_soon_for_its_kind_is_told(
    whole_days: float, left_days: float, verdict: Verdict, said: str
) -> None:
    (found,) = expiry([certificate(whole_days, left_days)], NOW)
    assert found.verdict is verdict
    assert said in found.found
    assert bool(found.cure) == (verdict is not Verdict.OK)


def test_of_several_those_that_end_are_named_and_without_any_nothing_is_said() -> None:
    (found,) = expiry([certificate(365, 200), certificate(365, 3), certificate(365, -1)], NOW)
    assert found.found == "nats n1 expired on 2026-05-03, nats n1 expires in 3 d"
    assert expiry([], NOW) == []


def test_our_own_files_are_read_and_of_two_authorities_the_one_that_lasts_counts(
    tmp_path: Path,
) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    shown, key = new.issue("client", "localhost")
    bundle = tmp_path / "ca.crt"
    bundle.write_text(old.certificate.read_text() + new.certificate.read_text())
    found = ours({"ca": str(bundle), "cert": str(shown), "key": str(key)}, "nats")
    assert [one.of for one in found] == ["nats authority", "nats client"]
    assert all(one.ends_at - one.begins_at == timedelta(days=2) for one in found)
    assert ours({"ca": str(tmp_path / "away")}, "nats") == []
