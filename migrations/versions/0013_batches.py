"""batches: see migrations/sql/0013_batches.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0013"
down_revision = "0012"
locks = {"partition": "ACCESS EXCLUSIVE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0013_batches.up.sql")


def downgrade() -> None:
    run("0013_batches.down.sql")
