"""critical_path: see migrations/sql/0007_critical_path.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0007"
down_revision = "0006"
locks = {
    "partition": "SHARE",
    "run": "ACCESS EXCLUSIVE",
    "step": "ACCESS EXCLUSIVE",
    "attempt": "SHARE",
}


def upgrade() -> None:
    run("0007_critical_path.up.sql")


def downgrade() -> None:
    run("0007_critical_path.down.sql")
