"""announced approvals: what a webhook has been told of is found without reading the run's other
deliveries."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0067"
down_revision = "0066"
locks = {}
_INDEX = """
CREATE INDEX CONCURRENTLY webhook_delivery_waiting ON hocket.webhook_delivery (run_id, step)
INCLUDE (webhook_id, created_at) WHERE event = 'run.waiting'
"""
indexes = (_INDEX.strip(),)


def upgrade() -> None:
    pass  # its index is built beside writers


def downgrade() -> None:
    run("0067_announced_approvals.down.sql")
