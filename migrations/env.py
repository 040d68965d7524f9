"""Alembic's entry: runs the revisions on the connection of `hocket.kit.postgres.migrations`."""

from alembic import context

from hocket.kit.postgres.migrating.indexes import build_missing

connection = context.config.attributes["connection"]


def build_indexes(*, step, **_rest):
    """Build the indexes of a revision that was not run alone, so that they are not there yet."""
    if step.is_upgrade:
        build_missing(connection, context.script.get_revision(step.up_revision_id).module)


context.configure(
    connection=connection, version_table="hocket_revision", on_version_apply=build_indexes
)
with context.begin_transaction():
    context.run_migrations()
