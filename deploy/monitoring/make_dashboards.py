"""Writes Grafana's dashboards into `dashboards/` from the tables below: `make dashboards`."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("dashboards")
Panel = tuple[str, str, str, str]
"""Title, unit, legend, query."""

RATE = "[$__rate_interval]"
STREAM, LEGEND = "namespace, account, stream", "{{namespace}} {{account}} {{stream}}"
SLOTS = "sum by (type) (max by (namespace, type) (hocket_worker_slots))"
"""Each coordinator of an installation tells the slots of all its workers."""
OURS = re.compile(r"\bhocket(?!_nats_)[\w:]+")
"""Metrics of Hocket's own processes. The servers may be elsewhere."""
CHOSEN = '{namespace=~"$namespace"}'


def _quantile(share: str, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{RATE})))"


DASHBOARDS: dict[str, tuple[Panel, ...]] = {
    "Hocket: runs and deadlines": (
        (
            *("Deadlines missed, 5 minutes", "percentunit", "{{namespace}}"),
            "hocket:deadlines_missed:ratio_5m",
        ),
        (
            *("Deadlines missed, 1 hour", "percentunit", "{{namespace}}"),
            "hocket:deadlines_missed:ratio_1h",
        ),
        (
            *("Burn of a 99 % objective, 1 hour", "none", "{{namespace}}"),
            "hocket:deadlines_missed:ratio_1h / 0.01",
        ),
        (
            *("Deadlines: what became of them", "ops", "{{priority}} {{result}}"),
            f"sum by (priority, result) (rate(hocket_run_deadlines_total{RATE}))",
        ),
        (
            "Runs ended",
            "ops",
            "{{status}}",
            f"sum by (status) (rate(hocket_runs_ended_total{RATE}))",
        ),
        ("Run time, p50", "s", "{{priority}}", _quantile("0.5", "hocket_run_seconds", "priority")),
        ("Run time, p99", "s", "{{priority}}", _quantile("0.99", "hocket_run_seconds", "priority")),
        ("Runs in memory", "none", "{{instance}}", "hocket_runs_in_flight"),
        (
            "Tasks taken in",
            "ops",
            "{{outcome}}",
            f"sum by (outcome) (rate(hocket_tasks_total{RATE}))",
        ),
        ("Tasks that wait at intake", "none", "", "sum(hocket_tasks_waiting)"),
    ),
    "Hocket: queues and workers": (
        ("Ready steps that wait", "none", "{{type}}", "sum by (type) (hocket_steps_held)"),
        ("Steps handed out", "none", "{{type}}", "sum by (type) (hocket_steps_out)"),
        ("Slots", "none", "{{type}}", SLOTS),
        (
            "Slots that runs need",
            "none",
            "{{type}}",
            "sum by (type) (hocket_worker_slots_wanted)",
        ),
        (
            *("Wait for a slot, p95, by class", "s", "{{priority}}"),
            _quantile("0.95", "hocket_step_held_seconds", "priority"),
        ),
        (
            *("Attempts ended", "ops", "{{type}} {{outcome}}"),
            f"sum by (type, outcome) (rate(hocket_worker_steps_total{RATE}))",
        ),
        (
            *("Attempt time, p95", "s", "{{type}}"),
            _quantile("0.95", "hocket_worker_step_duration_seconds", "type"),
        ),
        ("Attempts that hold a slot", "none", "{{type}}", "sum by (type) (hocket_worker_running)"),
    ),
    "Hocket: models and money": (
        ("US dollars per hour", "currencyUSD", "{{namespace}}", "hocket:spent_usd:per_hour"),
        (
            *("US dollars per hour, by model", "currencyUSD", "{{model}}"),
            f"sum by (model) (rate(hocket_gateway_cost_usd_total{RATE})) * 3600",
        ),
        (
            *("Attempts at models", "ops", "{{model}} {{status}}"),
            f"sum by (model, status) (rate(hocket_gateway_calls_total{RATE}))",
        ),
        (
            *("Tokens", "none", "{{model}} {{kind}}"),
            f"sum by (model, kind) (rate(hocket_gateway_tokens_total{RATE}))",
        ),
        (
            *("Time of an attempt, p95", "s", "{{backend}}"),
            _quantile("0.95", "hocket_gateway_latency_seconds", "backend"),
        ),
        ("Breakers", "none", "{{backend}}", "max by (backend) (hocket_gateway_breaker_open)"),
        ("Calls that wait for a place", "none", "", "sum(hocket_gateway_waiting)"),
        ("Calls at models", "none", "", "sum(hocket_gateway_in_flight)"),
        ("Usage records not booked", "none", "{{instance}}", "hocket_gateway_unbooked"),
        ("Calls booked", "ops", "", f"sum(rate(hocket_ledger_written_total{RATE}))"),
    ),
    "Hocket: NATS, Postgres and processes": (
        ("Components", "none", "{{component}}", "min by (component) (hocket_component_ok)"),
        ("Partitions owned", "none", "{{instance}}", "hocket_partitions_owned"),
        ("Takeovers", "none", "{{cause}}", "sum by (cause) (hocket_takeovers_total)"),
        (
            "Streams: messages",
            "none",
            LEGEND,
            f"max by ({STREAM}) (hocket_nats_stream_messages)",
        ),
        (
            *("Streams: how full", "percentunit", LEGEND),
            f"max by ({STREAM}) (hocket_nats_stream_bytes / hocket_nats_stream_max_bytes)",
        ),
        ("NATS: memory", "bytes", "{{instance}}", "hocket_nats_mem"),
        ("NATS: connections", "none", "{{instance}}", "hocket_nats_connections"),
        (
            *("Commits, p99", "s", ""),
            f"histogram_quantile(0.99, sum by (le) (rate(hocket_commit_seconds_bucket{RATE})))",
        ),
        ("Events applied", "ops", "", f"sum(rate(hocket_log_events_total{RATE}))"),
        (
            *("Postgres: connections", "none", "{{namespace}} {{state}}"),
            "sum by (namespace, state) (pg_stat_activity_count)",
        ),
        (
            *("Postgres: transactions", "ops", "{{namespace}}"),
            f"sum by (namespace) (rate(pg_stat_database_xact_commit{RATE}))",
        ),
        ("Postgres: size", "bytes", "{{datname}}", "pg_database_size_bytes"),
        (
            *("REST: requests", "ops", "{{route}} {{status}}"),
            f"sum by (route, status) (rate(hocket_api_requests_total{RATE}))",
        ),
        (
            *("Webhooks: attempts", "ops", "{{result}}"),
            f"sum by (result) (rate(hocket_webhook_attempts_total{RATE}))",
        ),
    ),
}


def dashboard(title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Return a dashboard in Grafana's form: two panels in a row."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    choices = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {
            "name": "namespace",
            "type": "query",
            "datasource": source,
            "query": "label_values(hocket_component_ok, namespace)",
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",  # also series without this label
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]
    return {
        "title": title,
        "uid": "hocket-" + title.partition(": ")[2].split()[0].rstrip(","),
        "schemaVersion": 39,
        "tags": ["hocket"],
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": choices},
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": name,
                "datasource": source,
                "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [
                    {
                        "refId": "A",
                        "expr": OURS.sub(lambda found: found[0] + CHOSEN, query),
                        "legendFormat": legend,
                        "datasource": source,
                    }
                ],
            }
            for number, (name, unit, legend, query) in enumerate(panels)
        ],
    }


def files() -> dict[str, str]:
    """Return the dashboards' files by name."""
    made = (dashboard(title, panels) for title, panels in DASHBOARDS.items())
    return {f"{one['uid']}.json": json.dumps(one, indent=1) + "\n" for one in made}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
