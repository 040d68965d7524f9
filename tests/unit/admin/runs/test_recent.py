"""Runs that were taken on a moment ago: those are waited for, and no others."""

from hocket.admin.runs.recent import RECENT_MS, RECENT_RUNS_KEPT, RecentRuns
from hocket.kit.process import clock


def test_a_run_is_recent_to_its_tenant_for_a_while() -> None:
    now_s = 0.0
    with clock.source(lambda: now_s, lambda: now_s):
        recent = RecentRuns()
        recent.add("acme", "r1")
        assert ("acme", "r1") in recent
        assert ("rival", "r1") not in recent
        now_s = RECENT_MS / 1000
        assert ("acme", "r1") not in recent, "it was deleted: nobody waits for it"


def test_the_latest_are_kept() -> None:
    recent = RecentRuns()
    for number in range(RECENT_RUNS_KEPT + 1):
        recent.add("acme", f"r{number}")
    assert ("acme", "r0") not in recent
    assert ("acme", "r1") in recent
