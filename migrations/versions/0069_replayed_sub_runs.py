"""replayed sub-runs: see migrations/sql/0069_replayed_sub_runs.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0069"
down_revision = "0068"
locks = {}


def upgrade() -> None:
    run("0069_replayed_sub_runs.up.sql")


def downgrade() -> None:
    run("0069_replayed_sub_runs.down.sql")
