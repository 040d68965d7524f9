"""ownership: see migrations/sql/0008_ownership.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0008"
down_revision = "0007"
locks = {"partition": "ACCESS EXCLUSIVE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0008_ownership.up.sql")


def downgrade() -> None:
    run("0008_ownership.down.sql")
