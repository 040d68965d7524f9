"""A real NATS server and a real Postgres in one data folder, without Docker or root privileges."""

from hocket.kit.embedded.nats import NatsServer
from hocket.kit.embedded.postgres import PostgresServer
from hocket.kit.embedded.servers import EmbeddedServers
from hocket.kit.process.platform_facts import default_data_dir

__all__ = ["EmbeddedServers", "NatsServer", "PostgresServer", "default_data_dir"]
