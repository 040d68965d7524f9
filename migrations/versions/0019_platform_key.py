"""platform key: see migrations/sql/0019_platform_key.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0019"
down_revision = "0018"
locks = {}


def upgrade() -> None:
    run("0019_platform_key.up.sql")


def downgrade() -> None:
    run("0019_platform_key.down.sql")
