"""comparable models: see migrations/sql/0071_comparable_models.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0071"
down_revision = "0070"
locks = {}


def upgrade() -> None:
    run("0071_comparable_models.up.sql")


def downgrade() -> None:
    run("0071_comparable_models.down.sql")
