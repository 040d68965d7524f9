"""operations on many runs: see migrations/sql/0032_bulk_operations.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    run("0032_bulk_operations.up.sql")


def downgrade() -> None:
    run("0032_bulk_operations.down.sql")
