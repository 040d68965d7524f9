"""dropped days: see migrations/sql/0044_dropped_days.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0044"
down_revision = "0043"
locks = {}


def upgrade() -> None:
    run("0044_dropped_days.up.sql")


def downgrade() -> None:
    run("0044_dropped_days.down.sql")
