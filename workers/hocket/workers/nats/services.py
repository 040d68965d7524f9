"""The services that `nats` nodes may call, by name: the section `nats_services`.

```yaml
nats_services:
  pricing:
    servers: [tls://nats-1.example.com, tls://nats-2.example.com]
    subject: pricing
    endpoints: [quote, history.daily]
    user: hocket
    password: os.environ/PRICING_PASSWORD
    tenants: [sales]
```

A node names a service and one of its endpoints; servers and credentials are kept here and not in
pipelines. Connections go only to the servers listed here, never to others that a server advertises.
"""

import asyncio
import random
import ssl
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hocket.kit.logs.log_limits import Reporting
from hocket.schemas.checks.first_fault import first_fault
from hocket.workers.http.remote_errors import reason_of
from hocket.workers.http.services import RequestPrice
from hocket.workers.http.services_by_tenant import ServicesByTenant
from hocket.workers.nats.client import ServiceClient
from hocket.workers.nats.errors import NatsServiceInvalid, NatsServiceUnknown, NatsUnreachable

MAX_SERVICES = 1_000
MAX_SERVERS = 16
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The highest allowed `max_bytes`."""
CONNECT_S = 5
CLOSE_S = 2.0
SECRETS = ("user", "password", "token")
ENVIRONMENT = "os.environ/"
_SUBJECT = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"

log = structlog.get_logger()
_reporting = Reporting()

Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=_SUBJECT)]


class NatsServiceSettings(BaseModel):
    """One entry of the section `nats_services`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: tuple[str, ...] = Field(min_length=1, max_length=MAX_SERVERS)
    """URLs of the servers of one cluster: `nats://host:4222` or `tls://host`."""
    subject: Subject
    """Subject on which the service listens."""
    endpoints: tuple[Subject, ...] = Field((), max_length=1_000)
    """What nodes may append to `subject`; if empty, they call `subject` itself."""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    """Credentials; `os.environ/NAME` reads an environment variable of the worker."""
    credentials: Path | None = None
    """A credentials file (`.creds`), as an alternative."""
    ca: Path | None = None
    """CA certificates for verifying the servers; by default, the system's."""
    tenants: tuple[str, ...] = ("*",)
    """Tenants whose nodes may call the service; `*` allows all."""
    max_bytes: int = Field(1024 * 1024, ge=1, le=MAX_ANSWER_BYTES)
    """Maximum size of a response, in bytes."""
    request_usd: RequestPrice = Decimal(0)
    """Price of a request that is answered, in US dollars."""

    @field_validator("servers", mode="before")
    @classmethod
    def _are_several(cls, servers: Any) -> Any:
        return [servers] if isinstance(servers, str) else servers

    @field_validator("servers")
    @classmethod
    def _are_places(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            try:
                parts = urlsplit(server)
                named, _ = parts.hostname, parts.port
            except ValueError as error:
                raise ValueError(f"it is not a URL: {error}") from None
            if parts.scheme not in ("nats", "tls") or not named or parts.path or parts.query:
                raise ValueError("write each as nats://host:4222 or tls://host:4222")
            if parts.username is not None or parts.password is not None:
                raise ValueError("credentials belong in `user` and `password`")
        return servers

    @model_validator(mode="after")
    def _has_one_way_in(self) -> "NatsServiceSettings":
        ways = [self.user is not None, self.token is not None, self.credentials is not None]
        if sum(ways) > 1 or (self.password is not None) != (self.user is not None):
            raise ValueError("set `user` and `password`, or `token`, or `credentials`")
        return self


class NatsService:
    """A service, and the connection to it, which is opened on first use and reopened once it is lost."""

    def __init__(
        self, name: str, settings: NatsServiceSettings, secrets: Mapping[str, str]
    ) -> None:
        self.name = name
        self.settings = settings
        self._options: dict[str, Any] = {
            field: _filled(name, field, value, secrets)
            for field in SECRETS
            if (value := getattr(settings, field)) is not None
        }
        if settings.credentials is not None:
            self._options["user_credentials"] = str(
                _there(name, "credentials", settings.credentials)
            )
        if settings.ca is not None or any(one.startswith("tls:") for one in settings.servers):
            self._options["tls"] = _context(name, settings.ca)
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants whose nodes may call it."""
        return self.settings.tenants

    def subject_of(self, endpoint: str | None) -> str | None:
        """Return the subject of an endpoint, or None if nodes may not name it."""
        if endpoint is None:
            return None if self.settings.endpoints else self.settings.subject
        if endpoint not in self.settings.endpoints:
            return None
        return f"{self.settings.subject}.{endpoint}"

    async def connection(self) -> Client:
        """Return the connection, or raise NatsUnreachable."""
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await self.close()
                self._client = await self._connected()
            return self._client

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await _closed(client)

    async def _connected(self) -> Client:
        servers = list(self.settings.servers)
        random.shuffle(servers)
        reason = "no server"
        for server in servers:
            client = ServiceClient()
            try:
                await client.connect(
                    [server],
                    name=f"hocket nats node ({self.name})",
                    allow_reconnect=False,  # it could go to servers that this one advertises
                    max_reconnect_attempts=1,  # otherwise a refusing server is tried for 2 min
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_S,
                    error_cb=self._on_error,
                    **self._options,
                )
            except (NatsError, OSError, TimeoutError, ValueError) as error:
                reason = reason_of(error)
                await _closed(client)
            except asyncio.CancelledError:
                await _closed(client)
                raise
            else:
                return client
        raise NatsUnreachable(reason=reason, component=f"nats:{self.name}")

    async def _on_error(self, error: Exception) -> None:
        if count := _reporting.due(f"nats_service {self.name}"):
            log.warning("nats_service", service=self.name, reason=reason_of(error), count=count)


class NatsServices(ServicesByTenant[NatsService]):
    """The configured services. Raises NatsServiceInvalid for an entry that is not valid; `get` raises
    NatsServiceUnknown."""

    def __init__(self, section: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        if len(section) > MAX_SERVICES:
            raise NatsServiceInvalid(
                nats_service="(all)",
                field="nats_services",
                reason=f"there are {len(section)}",
                cure=f"Name at most {MAX_SERVICES}.",
            )
        super().__init__(
            {
                name: NatsService(name, _settings(name, value), secrets)
                for name, value in section.items()
            },
            lambda name, known: NatsServiceUnknown(nats_service=name, known=known),
        )


async def _closed(client: Client) -> None:
    """Close a connection, even if it is only half open."""
    try:
        await asyncio.wait_for(client.close(), CLOSE_S)
    except (TimeoutError, NatsError, OSError) as error:  # it is lost anyway
        log.debug("nats_service_not_closed", reason=str(error))


def _settings(name: str, value: Any) -> NatsServiceSettings:
    try:
        return NatsServiceSettings.model_validate(value)
    except ValidationError as error:
        fault = first_fault(error)
        raise NatsServiceInvalid(
            nats_service=name,
            field=fault.field("entry"),
            reason=fault.reason,
            cure=f"Use {', '.join(f'`{field}`' for field in NatsServiceSettings.model_fields)}.",
        ) from None


def _filled(service: str, field: str, value: str, secrets: Mapping[str, str]) -> str:
    if not value.startswith(ENVIRONMENT):
        return value
    named = value.removeprefix(ENVIRONMENT)
    if not secrets.get(named):
        raise NatsServiceInvalid(
            nats_service=service,
            field=field,
            reason=f"the environment variable {named} is not set",
            cure="Set it for the workers.",
        )
    return secrets[named]


def _there(service: str, field: str, file: Path) -> Path:
    if not file.is_file():
        raise NatsServiceInvalid(
            nats_service=service,
            field=field,
            reason=f"there is no file {file}",
            cure="Name a file that the workers can read.",
        )
    return file


def _context(service: str, ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(
            cafile=None if ca is None else str(_there(service, "ca", ca))
        )
    except (ssl.SSLError, OSError) as error:
        raise NatsServiceInvalid(
            nats_service=service,
            field="ca",
            reason=f"it contains no certificates: {reason_of(error)}",
            cure="Name a file of certificates (PEM).",
        ) from None
