"""blobs: see migrations/sql/0003_blobs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0003"
down_revision = "0002"
locks = {}


def upgrade() -> None:
    run("0003_blobs.up.sql")


def downgrade() -> None:
    run("0003_blobs.down.sql")
