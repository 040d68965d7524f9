"""retrieval: see migrations/sql/0004_retrieval.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0004"
down_revision = "0003"
locks = {}


def upgrade() -> None:
    run("0004_retrieval.up.sql")


def downgrade() -> None:
    run("0004_retrieval.down.sql")
