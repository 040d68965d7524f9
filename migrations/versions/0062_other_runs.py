"""whole days: see migrations/sql/0062_other_runs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0062"
down_revision = "0061"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0062_other_runs.up.sql")


def downgrade() -> None:
    run("0062_other_runs.down.sql")
