"""running runs: see migrations/sql/0046_running_runs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0046"
down_revision = "0045"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0046_running_runs.up.sql")


def downgrade() -> None:
    run("0046_running_runs.down.sql")
