"""runs of today: see migrations/sql/0048_runs_of_today.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0048"
down_revision = "0047"
locks = {}


def upgrade() -> None:
    run("0048_runs_of_today.up.sql")


def downgrade() -> None:
    run("0048_runs_of_today.down.sql")
