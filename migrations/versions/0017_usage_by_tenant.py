"""usage by tenant: see migrations/sql/0017_usage_by_tenant.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0017"
down_revision = "0016"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0017_usage_by_tenant.up.sql")


def downgrade() -> None:
    run("0017_usage_by_tenant.down.sql")
