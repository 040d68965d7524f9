"""charges in reports: see migrations/sql/0060_charges_in_reports.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0060"
down_revision = "0059"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0060_charges_in_reports.up.sql")


def downgrade() -> None:
    run("0060_charges_in_reports.down.sql")
