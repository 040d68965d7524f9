"""calls of other runs: see migrations/sql/0050_calls_of_other_runs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0050"
down_revision = "0049"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0050_calls_of_other_runs.up.sql")


def downgrade() -> None:
    run("0050_calls_of_other_runs.down.sql")
