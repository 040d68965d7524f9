"""retention: see migrations/sql/0018_retention.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0018"
down_revision = "0017"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0018_retention.up.sql")


def downgrade() -> None:
    run("0018_retention.down.sql")
