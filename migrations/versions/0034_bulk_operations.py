"""operations on many runs: see migrations/sql/0034_bulk_operations.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0034"
down_revision = "0033"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0034_bulk_operations.up.sql")


def downgrade() -> None:
    run("0034_bulk_operations.down.sql")
