"""budgets of runs, whole: see migrations/sql/0031_whole_run_budgets.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0031"
down_revision = "0030"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0031_whole_run_budgets.up.sql")


def downgrade() -> None:
    run("0031_whole_run_budgets.down.sql")
