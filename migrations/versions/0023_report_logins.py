"""report logins: see migrations/sql/0023_report_logins.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0023"
down_revision = "0022"
locks = {
    "partition": "SHARE",
    "run": "ACCESS EXCLUSIVE",
    "step": "ACCESS EXCLUSIVE",
    "attempt": "ACCESS EXCLUSIVE",
}


def upgrade() -> None:
    run("0023_report_logins.up.sql")


def downgrade() -> None:
    run("0023_report_logins.down.sql")
