"""restorations: see migrations/sql/0043_restorations.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0043"
down_revision = "0042"
locks = {}


def upgrade() -> None:
    run("0043_restorations.up.sql")


def downgrade() -> None:
    run("0043_restorations.down.sql")
