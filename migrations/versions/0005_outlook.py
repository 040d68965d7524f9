"""outlook: see migrations/sql/0005_outlook.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0005"
down_revision = "0004"
locks = {}


def upgrade() -> None:
    run("0005_outlook.up.sql")


def downgrade() -> None:
    run("0005_outlook.down.sql")
