"""open_calls: see migrations/sql/0010_open_calls.up.sql."""

from hocket.kit.migrations import run_sql as run

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    run("0010_open_calls.up.sql")


def downgrade() -> None:
    run("0010_open_calls.down.sql")
