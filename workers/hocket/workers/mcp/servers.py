"""The MCP servers whose tools `mcp` nodes may call, by name: the section `mcp_servers`.

```yaml
mcp_servers:
  docs:
    url: https://mcp.example.com/mcp
    headers: {authorization: Bearer os.environ/DOCS_TOKEN}
    tools: [search, read]
    tenants: [sales]
```

A node names a server and a tool; secrets are kept here and not in pipelines.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from hocket.schemas.checks.first_fault import first_fault
from hocket.workers.http.errors import HttpServiceInvalid
from hocket.workers.http.services import Method, Service, ServiceSettings
from hocket.workers.http.services_by_tenant import ServicesByTenant
from hocket.workers.mcp.errors import McpServerInvalid, McpServerUnknown

if TYPE_CHECKING:
    from hocket.workers.mcp.server import McpServer

MAX_SERVERS = 1_000
MAX_LISTED_TOOLS = 1_000


class McpServerSettings(ServiceSettings):
    """An entry of the section `mcp_servers`; `url` is the streamable HTTP endpoint."""

    methods: tuple[Method, ...] = Field(("POST", "DELETE"), exclude=True, init=False)
    tools: tuple[str, ...] = Field(("*",), max_length=MAX_LISTED_TOOLS)
    """Tools that nodes may call; `*` allows all."""
    concurrency: int = Field(64, ge=1, le=1_000)
    """Maximum connections per worker process."""


class McpServers(ServicesByTenant["McpServer"]):
    """The configured servers. Raises McpServerInvalid for an entry that is not valid; `get` raises
    McpServerUnknown."""

    def __init__(self, section: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        if len(section) > MAX_SERVERS:
            raise McpServerInvalid(
                server="(all)",
                field="mcp_servers",
                reason=f"there are {len(section)}",
                cure=f"Name at most {MAX_SERVERS}.",
            )
        super().__init__(
            {name: _server(name, value, secrets) for name, value in section.items()},
            lambda name, known: McpServerUnknown(server=name, known=known),
        )

    async def described(
        self, server: str, tool: str, tenant: str, *, timeout_ms: float
    ) -> dict[str, Any]:
        """Return a tool's `description` and `parameters`, as its server has them."""
        return await self.get(server, tenant).described(tool, timeout_ms=timeout_ms)


def _server(name: str, value: Any, secrets: Mapping[str, str]) -> "McpServer":
    from hocket.workers.mcp.server import McpServer  # lazily, because the SDK takes 28 MiB

    try:
        settings = McpServerSettings.model_validate(
            {"url": value} if isinstance(value, str) else value
        )
    except ValidationError as error:
        fault = first_fault(error)
        fields = [f"`{one}`" for one in McpServerSettings.model_fields if one != "methods"]
        raise McpServerInvalid(
            server=name,
            field=fault.field("entry"),
            reason=fault.reason,
            cure=f"Use {', '.join(fields)}.",
        ) from None
    try:
        service = Service(name, settings, secrets)
    except HttpServiceInvalid as error:
        fields_of = {key: error.fields[key] for key in ("field", "reason", "cure")}
        raise McpServerInvalid(server=name, **fields_of) from None
    return McpServer(service, settings.tools)
