"""Every metric that a page, an alert, a dashboard or a chart names is exported under that name: a
counter as `..._total`, a histogram also as `..._bucket`, `..._count` and `..._sum`."""

import re
from pathlib import Path

import pytest

from support.places import ROOT

EXPORTER = ROOT / "deploy" / "monitoring" / "nats_exporter.py"
PLACES = sorted(
    path
    for folder in (ROOT, *(ROOT / name for name in ("docs", "deploy", "examples", "bench")))
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*"))
    if path.suffix in (".md", ".yaml", ".yml", ".json", ".tpl")
    and not {".venvs", "node_modules"} & set(path.parts)
)
COUNTERS, GAUGES, HISTOGRAMS = ("Counter", "Tally"), ("Gauge",), ("Histogram", "Distribution")
DEFINED = re.compile(
    rf'\b({"|".join((*COUNTERS, *GAUGES, *HISTOGRAMS))})(?:MetricFamily)?\(\s*"(hocket_\w+)"'
)
SUFFIXES = ("_bucket", "_count", "_sum")
NAMED = re.compile(r"(?<![\w/-])hocket_\w+")
OTHERS = {
    "hocket_answer_approval": "a tool of `hocket mcp`",
    "hocket_cancel_run": "a tool of `hocket mcp`",
    "hocket_get_run": "a tool of `hocket mcp`",
    "hocket_demo_reader": "a role in Postgres",
    "hocket_report": "a role in Postgres",
    "hocket_revision": "a table in Postgres",
    "hocket_play": "a fixture of pytest",
    "hocket_recording": "a fixture of pytest",
    "hocket_step": "a decorator for FastStream",
}
"""Names that are no metrics."""


def exported() -> set[str]:
    """Return the names under which Prometheus gets what the code counts and measures."""
    names = set()
    for folder in ("services", "workers", "deploy/monitoring"):
        for file in (ROOT / folder).rglob("*.py"):
            for kind, name in DEFINED.findall(file.read_text("utf-8")):
                if kind in COUNTERS:
                    names.add(name.removesuffix("_total") + "_total")
                else:
                    names.add(name)
                if kind in HISTOGRAMS:
                    names |= {name + suffix for suffix in SUFFIXES}
    gauges = re.search(
        r"^SERVER = (\{.*?\})", EXPORTER.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert gauges is not None
    return names | {f"hocket_nats_{name}" for name in re.findall(r'"(\w+)":', gauges[1])}


EXPORTED = exported()
NAMING = [path for path in PLACES if NAMED.search(path.read_text("utf-8"))]


def test_counters_gauges_and_histograms_are_found() -> None:
    assert {
        "hocket_tasks_total",  # a tally
        "hocket_gateway_calls_total",  # a counter
        "hocket_api_requests_total",  # a counter that is called so in the code
        "hocket_runs_in_flight",  # a gauge
        "hocket_step_held_seconds_bucket",  # a distribution
        "hocket_commit_seconds_sum",  # a histogram
        "hocket_nats_connections",  # a gauge of the exporter for NATS
    } <= EXPORTED
    assert not {"hocket_tasks", "hocket_takeovers", "hocket_runs_in_flight_total"} & EXPORTED
    assert not EXPORTED & set(OTHERS)


@pytest.mark.parametrize("path", NAMING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_metrics_as_they_are_exported(path: Path) -> None:
    text = path.read_text("utf-8")
    assert set(NAMED.findall(text)) - EXPORTED - set(OTHERS) == set()
    naming = "\n".join(line for line in text.splitlines() if NAMED.search(line))
    ends = tuple(set(re.findall(r"`(_\w+)", naming)) - set(SUFFIXES))
    shortened = {name for name in EXPORTED if ends and name.removesuffix("_total").endswith(ends)}
    assert shortened == set(), f"write names in full instead of {ends}"
