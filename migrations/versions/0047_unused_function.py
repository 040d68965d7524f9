"""unused function: see migrations/sql/0047_unused_function.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0047"
down_revision = "0046"
locks = {}


def upgrade() -> None:
    run("0047_unused_function.up.sql")


def downgrade() -> None:
    run("0047_unused_function.down.sql")
