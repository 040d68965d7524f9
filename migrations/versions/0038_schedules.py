"""tasks by the clock: see migrations/sql/0038_schedules.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0038"
down_revision = "0037"
locks = {}


def upgrade() -> None:
    run("0038_schedules.up.sql")


def downgrade() -> None:
    run("0038_schedules.down.sql")
