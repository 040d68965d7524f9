"""webhooks: see migrations/sql/0039_webhooks.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0039"
down_revision = "0038"
locks = {}


def upgrade() -> None:
    run("0039_webhooks.up.sql")


def downgrade() -> None:
    run("0039_webhooks.down.sql")
