"""statistics of calls: see migrations/sql/0033_usage_statistics.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0033"
down_revision = "0032"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0033_usage_statistics.up.sql")


def downgrade() -> None:
    run("0033_usage_statistics.down.sql")
