"""written rows: see migrations/sql/0066_written_rows.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0066"
down_revision = "0065"
locks = {}


def upgrade() -> None:
    run("0066_written_rows.up.sql")


def downgrade() -> None:
    run("0066_written_rows.down.sql")
