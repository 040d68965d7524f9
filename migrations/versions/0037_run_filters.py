"""filters of the list of runs: see migrations/sql/0037_run_filters.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0037"
down_revision = "0036"
locks = {"partition": "SHARE", "run": "ACCESS EXCLUSIVE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0037_run_filters.up.sql")


def downgrade() -> None:
    run("0037_run_filters.down.sql")
