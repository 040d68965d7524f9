"""The reports that are rolled up by day.

Each has a table `hocket.rollup_...` with the rows that the view `hocket.live_...` gave for past days
(docs/decisions/0018-reports-read-rollups.md).
"""

REPORTS = (
    "calls",
    "cost_by_pipeline_day",
    "cost_by_tenant",
    "cost_by_kind",
    "cost_by_label",
    "waste",
    "experiments",
    "cost_by_run",
    "cost_by_outcome",
    "run_budgets",
    "slo_attainment",
    "critical_path",
    "latency_by_node",
    "cache_savings",
    "other_entries",
    "run_hours",
    "error_hours",
)
TABLES = ("dirty_day", *(f"rollup_{name}" for name in REPORTS))
"""The tables of the rollups, and the table of the days that have changed since."""
