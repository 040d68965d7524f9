"""keys of workers: see migrations/sql/0032_worker_keys.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0032"
down_revision = "0031"
locks = {}


def upgrade() -> None:
    run("0032_worker_keys.up.sql")


def downgrade() -> None:
    run("0032_worker_keys.down.sql")
