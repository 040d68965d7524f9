"""suspended attempts: see migrations/sql/0049_suspended_attempts.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0049"
down_revision = "0048"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "ACCESS EXCLUSIVE"}


def upgrade() -> None:
    run("0049_suspended_attempts.up.sql")


def downgrade() -> None:
    run("0049_suspended_attempts.down.sql")
