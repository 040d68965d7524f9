"""log lines: see migrations/sql/0053_log_lines.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0053"
down_revision = "0052"
locks = {}


def upgrade() -> None:
    run("0053_log_lines.up.sql")


def downgrade() -> None:
    run("0053_log_lines.down.sql")
