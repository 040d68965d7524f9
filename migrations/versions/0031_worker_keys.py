"""keys of workers: see migrations/sql/0031_worker_keys.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    run("0031_worker_keys.up.sql")


def downgrade() -> None:
    run("0031_worker_keys.down.sql")
