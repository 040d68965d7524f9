"""no table of spans: see migrations/sql/0036_no_spans.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0036"
down_revision = "0035"
locks = {}


def upgrade() -> None:
    run("0036_no_spans.up.sql")


def downgrade() -> None:
    run("0036_no_spans.down.sql")
