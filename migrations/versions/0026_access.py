"""keys and audit: see migrations/sql/0026_access.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0026"
down_revision = "0025"
locks = {}


def upgrade() -> None:
    run("0026_access.up.sql")


def downgrade() -> None:
    run("0026_access.down.sql")
