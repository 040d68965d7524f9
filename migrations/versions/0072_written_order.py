"""written order: see migrations/sql/0072_written_order.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0072"
down_revision = "0071"
locks = {}


def upgrade() -> None:
    run("0072_written_order.up.sql")


def downgrade() -> None:
    run("0072_written_order.down.sql")
