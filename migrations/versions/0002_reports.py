"""reports: see migrations/sql/0002_reports.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0002"
down_revision = "0001"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0002_reports.up.sql")


def downgrade() -> None:
    run("0002_reports.down.sql")
