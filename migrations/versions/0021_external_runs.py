"""external runs: see migrations/sql/0021_external_runs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0021"
down_revision = "0020"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0021_external_runs.up.sql")


def downgrade() -> None:
    run("0021_external_runs.down.sql")
