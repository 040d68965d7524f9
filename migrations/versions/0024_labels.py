"""labels of runs and calls: see migrations/sql/0024_labels.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0024"
down_revision = "0023"
locks = {"partition": "SHARE", "run": "ACCESS EXCLUSIVE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0024_labels.up.sql")


def downgrade() -> None:
    run("0024_labels.down.sql")
