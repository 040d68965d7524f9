"""reports of cost, time and experiments: see migrations/sql/0028_reports.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0028"
down_revision = "0027"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0028_reports.up.sql")


def downgrade() -> None:
    run("0028_reports.down.sql")
