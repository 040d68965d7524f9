"""run hours: see migrations/sql/0055_run_hours.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0055"
down_revision = "0054"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0055_run_hours.up.sql")


def downgrade() -> None:
    run("0055_run_hours.down.sql")
