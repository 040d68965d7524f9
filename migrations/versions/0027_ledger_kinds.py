"""kinds of entries in the ledger: see migrations/sql/0027_ledger_kinds.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0027"
down_revision = "0026"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0027_ledger_kinds.up.sql")


def downgrade() -> None:
    run("0027_ledger_kinds.down.sql")
