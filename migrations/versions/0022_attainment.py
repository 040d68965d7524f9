"""attainment: see migrations/sql/0022_attainment.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0022"
down_revision = "0021"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0022_attainment.up.sql")


def downgrade() -> None:
    run("0022_attainment.down.sql")
