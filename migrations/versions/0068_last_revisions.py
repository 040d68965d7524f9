"""last revisions: see migrations/sql/0068_last_revisions.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0068"
down_revision = "0067"
locks = {}


def upgrade() -> None:
    run("0068_last_revisions.up.sql")


def downgrade() -> None:
    run("0068_last_revisions.down.sql")
