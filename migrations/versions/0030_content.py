"""prompts and answers that are kept: see migrations/sql/0030_content.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0030"
down_revision = "0029"
locks = {}


def upgrade() -> None:
    run("0030_content.up.sql")


def downgrade() -> None:
    run("0030_content.down.sql")
