"""restorations: see migrations/sql/0042_restorations.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    run("0042_restorations.up.sql")


def downgrade() -> None:
    run("0042_restorations.down.sql")
