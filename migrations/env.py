"""Alembic's entry: runs the revisions on the connection of `hocket.kit.postgres.migrations`."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="hocket_revision")
with context.begin_transaction():
    context.run_migrations()
