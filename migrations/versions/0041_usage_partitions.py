"""usage partitions: see migrations/sql/0041_usage_partitions.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0041"
down_revision = "0040"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0041_usage_partitions.up.sql")


def downgrade() -> None:
    run("0041_usage_partitions.down.sql")
