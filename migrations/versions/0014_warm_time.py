"""warm time: see migrations/sql/0014_warm_time.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0014"
down_revision = "0013"
locks = {}


def upgrade() -> None:
    run("0014_warm_time.up.sql")


def downgrade() -> None:
    run("0014_warm_time.down.sql")
