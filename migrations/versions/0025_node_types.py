"""The registry of node types: see migrations/sql/0025_node_types.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0025"
down_revision = "0024"
locks = {}


def upgrade() -> None:
    run("0025_node_types.up.sql")


def downgrade() -> None:
    run("0025_node_types.down.sql")
