"""decisions: see migrations/sql/0012_decisions.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0012"
down_revision = "0011"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0012_decisions.up.sql")


def downgrade() -> None:
    run("0012_decisions.down.sql")
