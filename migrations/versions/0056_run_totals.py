"""run totals: see migrations/sql/0056_run_totals.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0056"
down_revision = "0055"
locks = {}


def upgrade() -> None:
    run("0056_run_totals.up.sql")


def downgrade() -> None:
    run("0056_run_totals.down.sql")
