"""step_cache: see migrations/sql/0006_step_cache.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0006"
down_revision = "0005"
locks = {"partition": "SHARE", "run": "SHARE", "step": "ACCESS EXCLUSIVE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0006_step_cache.up.sql")


def downgrade() -> None:
    run("0006_step_cache.down.sql")
