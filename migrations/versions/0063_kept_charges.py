"""kept charges: see migrations/sql/0063_kept_charges.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0063"
down_revision = "0062"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0063_kept_charges.up.sql")


def downgrade() -> None:
    run("0063_kept_charges.down.sql")
