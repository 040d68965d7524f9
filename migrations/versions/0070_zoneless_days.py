"""days whatever the time zone: see migrations/sql/0070_zoneless_days.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0070"
down_revision = "0069"
locks = {}


def upgrade() -> None:
    run("0070_zoneless_days.up.sql")


def downgrade() -> None:
    run("0070_zoneless_days.down.sql")
