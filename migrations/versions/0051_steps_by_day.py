"""steps by day: see migrations/sql/0051_steps_by_day.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0051"
down_revision = "0050"
locks = {
    "partition": "SHARE",
    "run": "ACCESS EXCLUSIVE",
    "step": "ACCESS EXCLUSIVE",
    "attempt": "ACCESS EXCLUSIVE",
}


def upgrade() -> None:
    run("0051_steps_by_day.up.sql")


def downgrade() -> None:
    run("0051_steps_by_day.down.sql")
