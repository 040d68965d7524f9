"""told mark: see migrations/sql/0015_told_mark.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0015"
down_revision = "0014"
locks = {"partition": "ACCESS EXCLUSIVE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0015_told_mark.up.sql")


def downgrade() -> None:
    run("0015_told_mark.down.sql")
