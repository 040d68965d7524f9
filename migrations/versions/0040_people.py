"""people: see migrations/sql/0040_people.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0040"
down_revision = "0039"
locks = {}


def upgrade() -> None:
    run("0040_people.up.sql")


def downgrade() -> None:
    run("0040_people.down.sql")
