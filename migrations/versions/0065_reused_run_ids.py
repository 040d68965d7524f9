"""reused run ids: see migrations/sql/0065_reused_run_ids.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0065"
down_revision = "0064"
locks = {"partition": "SHARE", "run": "SHARE ROW EXCLUSIVE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0065_reused_run_ids.up.sql")


def downgrade() -> None:
    run("0065_reused_run_ids.down.sql")
