"""cache writes: see migrations/sql/0020_cache_writes.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0020"
down_revision = "0019"
locks = {}


def upgrade() -> None:
    run("0020_cache_writes.up.sql")


def downgrade() -> None:
    run("0020_cache_writes.down.sql")
