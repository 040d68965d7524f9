"""platform: see migrations/sql/0001_platform.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0001"
down_revision = None
locks = {
    "partition": "ACCESS EXCLUSIVE",
    "run": "ACCESS EXCLUSIVE",
    "step": "ACCESS EXCLUSIVE",
    "attempt": "ACCESS EXCLUSIVE",
}


def upgrade() -> None:
    run("0001_platform.up.sql")


def downgrade() -> None:
    run("0001_platform.down.sql")
