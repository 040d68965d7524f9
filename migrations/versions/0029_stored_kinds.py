"""the kinds of calls in their rows: see migrations/sql/0029_stored_kinds.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0029"
down_revision = "0028"
locks = {
    "partition": "SHARE",
    "run": "SHARE",
    "step": "SHARE ROW EXCLUSIVE",
    "attempt": "SHARE ROW EXCLUSIVE",
}


def upgrade() -> None:
    run("0029_stored_kinds.up.sql")


def downgrade() -> None:
    run("0029_stored_kinds.down.sql")
