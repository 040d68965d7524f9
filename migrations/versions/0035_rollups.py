"""rollups of reports: see migrations/sql/0035_rollups.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0035"
down_revision = "0034"
locks = {
    "partition": "SHARE",
    "run": "SHARE ROW EXCLUSIVE",
    "step": "SHARE ROW EXCLUSIVE",
    "attempt": "SHARE",
}


def upgrade() -> None:
    run("0035_rollups.up.sql")


def downgrade() -> None:
    run("0035_rollups.down.sql")
