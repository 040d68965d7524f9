"""grants: see migrations/sql/0045_grants.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0045"
down_revision = "0044"
locks = {}


def upgrade() -> None:
    run("0045_grants.up.sql")


def downgrade() -> None:
    run("0045_grants.down.sql")
