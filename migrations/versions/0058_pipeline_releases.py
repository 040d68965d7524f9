"""pipeline releases: see migrations/sql/0058_pipeline_releases.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0058"
down_revision = "0057"
locks = {}


def upgrade() -> None:
    run("0058_pipeline_releases.up.sql")


def downgrade() -> None:
    run("0058_pipeline_releases.down.sql")
