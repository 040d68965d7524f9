"""spend_kinds: see migrations/sql/0009_spend_kinds.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0009"
down_revision = "0008"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0009_spend_kinds.up.sql")


def downgrade() -> None:
    run("0009_spend_kinds.down.sql")
