"""error hours: see migrations/sql/0057_error_hours.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0057"
down_revision = "0056"
locks = {"partition": "SHARE", "run": "ACCESS EXCLUSIVE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0057_error_hours.up.sql")


def downgrade() -> None:
    run("0057_error_hours.down.sql")
