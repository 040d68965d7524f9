"""tenants: see migrations/sql/0016_tenants.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0016"
down_revision = "0015"
locks = {}


def upgrade() -> None:
    run("0016_tenants.up.sql")


def downgrade() -> None:
    run("0016_tenants.down.sql")
