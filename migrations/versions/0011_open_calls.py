"""open_calls: see migrations/sql/0011_open_calls.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0011"
down_revision = "0010"
locks = {}


def upgrade() -> None:
    run("0011_open_calls.up.sql")


def downgrade() -> None:
    run("0011_open_calls.down.sql")
