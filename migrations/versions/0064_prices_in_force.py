"""prices in force: see migrations/sql/0064_prices_in_force.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0064"
down_revision = "0063"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0064_prices_in_force.up.sql")


def downgrade() -> None:
    run("0064_prices_in_force.down.sql")
