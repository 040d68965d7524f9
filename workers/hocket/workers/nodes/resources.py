"""The resources that nodes share in a worker process; made when it starts, closed when it ends."""

from dataclasses import dataclass, field

from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.workers.http.services import Services
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nats.services import NatsServices
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.sql.targets import Targets


@dataclass(frozen=True)
class Resources:
    """Threads for sync functions, the functions that `python` nodes may run, the databases of `sql` and
    `planning` nodes, the services of `http` and `nats` nodes, the servers of `mcp` nodes, and, if
    `retrieval` nodes run here, the connections to the index."""

    threads: StepThreads
    targets: Targets
    handlers: AllowedHandlers = field(default_factory=AllowedHandlers)
    services: Services = field(default_factory=lambda: Services({}, {}))
    mcp_servers: McpServers = field(default_factory=lambda: McpServers({}, {}))
    nats_services: NatsServices = field(default_factory=lambda: NatsServices({}, {}))
    index: IndexConnections | None = None
