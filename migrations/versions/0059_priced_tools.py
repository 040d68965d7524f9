"""priced tools: see migrations/sql/0059_priced_tools.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0059"
down_revision = "0058"
locks = {}


def upgrade() -> None:
    run("0059_priced_tools.up.sql")


def downgrade() -> None:
    run("0059_priced_tools.down.sql")
