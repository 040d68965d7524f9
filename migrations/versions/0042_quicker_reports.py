"""quicker reports: see migrations/sql/0042_quicker_reports.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0042"
down_revision = "0041"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0042_quicker_reports.up.sql")


def downgrade() -> None:
    run("0042_quicker_reports.down.sql")
