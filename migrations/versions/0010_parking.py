"""parking: see migrations/sql/0010_parking.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0010"
down_revision = "0009"
locks = {"partition": "SHARE", "run": "ACCESS EXCLUSIVE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0010_parking.up.sql")


def downgrade() -> None:
    run("0010_parking.down.sql")
