"""whole days: see migrations/sql/0061_whole_days.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0061"
down_revision = "0060"
locks = {}


def upgrade() -> None:
    run("0061_whole_days.up.sql")


def downgrade() -> None:
    run("0061_whole_days.down.sql")
