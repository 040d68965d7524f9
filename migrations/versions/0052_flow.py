"""flow control by key: see migrations/sql/0052_flow.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0052"
down_revision = "0051"
locks = {}


def upgrade() -> None:
    run("0052_flow.up.sql")


def downgrade() -> None:
    run("0052_flow.down.sql")
