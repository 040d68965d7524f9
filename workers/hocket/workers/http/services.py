"""The HTTP services that `http` nodes may call, by name: the section `http_services`.

```yaml
http_services:
  crm:
    url: https://crm.example.com/api
    headers: {authorization: Bearer os.environ/CRM_TOKEN}
    methods: [GET, POST]
    tenants: [sales]
```

A node names a service and a path below its URL; secrets are kept here and not in pipelines.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from aiohttp import ClientSession, DummyCookieJar
from aiohttp.resolver import ThreadedResolver
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from hocket.kit.public_addresses import PublicResolver, is_address, is_public
from hocket.schemas.checks.first_fault import first_fault
from hocket.workers.http.connections import BoundedConnector
from hocket.workers.http.errors import (
    HttpAddressRefused,
    HttpServiceInvalid,
    HttpServiceUnknown,
)
from hocket.workers.http.services_by_tenant import ServicesByTenant

MAX_SERVICES = 1_000
MAX_HEADERS = 50
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The highest allowed `max_bytes`."""
MAX_LINE_BYTES = 16_384
"""The limit on one header of an answer."""
DNS_CACHE_S = 10
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
OURS = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect "
    "accept-encoding proxy-authorization proxy-connection idempotency-key traceparent "
    "x-http-method-override x-http-method x-method-override x-original-url x-rewrite-url".split()
)
"""Headers that only the worker may set; some of them would change the method or the path."""
_NAMED = re.compile(r"os\.environ/([A-Za-z_]\w*)")

RequestPrice = Annotated[Decimal, Field(ge=0, le=1_000, allow_inf_nan=False)]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class ServiceSettings(BaseModel):
    """One entry of the section `http_services`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(min_length=1, max_length=2_048)
    """URL of the service; paths of nodes are appended to it."""
    headers: dict[str, str] = Field(default_factory=dict, max_length=MAX_HEADERS)
    """Headers of every request; `os.environ/NAME` reads an environment variable of the worker."""
    methods: tuple[Method, ...] = ("GET", "HEAD")
    """Methods that nodes may use."""
    tenants: tuple[str, ...] = ("*",)
    """Tenants whose nodes may call the service; `*` allows all."""
    private: bool = False
    """Whether the service may have a private address (loopback, 10.0.0.0/8 ...)."""
    max_bytes: int = Field(1024 * 1024, ge=1, le=MAX_ANSWER_BYTES)
    """Maximum size of a response, in bytes."""
    concurrency: int = Field(32, ge=1, le=1_000)
    """Maximum connections per worker process."""
    request_usd: RequestPrice = Decimal(0)
    """Price of a request that is answered, in US dollars."""

    @field_validator("url")
    @classmethod
    def _is_a_place(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            named, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"it is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not named:
            raise ValueError("write it as https://host/path")
        if parts.username is not None or parts.password is not None:
            raise ValueError("credentials belong in `headers`")
        if parts.query or parts.fragment or not url.isascii() or not url.isprintable():
            raise ValueError("it has a host and a path, and nothing after it")
        return url.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if not HEADER_NAME.fullmatch(name) or name.lower() in OURS:
                raise ValueError(f"`{name[:80]}` cannot be set")
        return {name.lower(): value for name, value in headers.items()}


class Service:
    """A service, and the connections to it."""

    def __init__(self, name: str, settings: ServiceSettings, secrets: Mapping[str, str]) -> None:
        self.name = name
        self.settings = settings
        self.headers = {
            header: _filled(name, header, value, secrets)
            for header, value in settings.headers.items()
        }
        host = urlsplit(settings.url).hostname or ""
        if not settings.private and is_address(host) and not is_public(host):
            raise HttpServiceInvalid(
                service=name,
                field="url",
                reason=f"{host} is a private address, or not written as one",
                cure="Set `private: true` if it is meant to be.",
            )
        self._session: ClientSession | None = None

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants whose nodes may call it."""
        return self.settings.tenants

    @property
    def session(self) -> ClientSession:
        """The connections, created on first use. Cookies are not kept, proxies from the environment are
        not used, and answers are not decompressed."""
        if self._session is None:
            settings = self.settings
            self._session = ClientSession(
                connector=BoundedConnector(
                    limit=settings.concurrency,
                    ttl_dns_cache=DNS_CACHE_S,
                    resolver=ThreadedResolver() if settings.private else PublicResolver(_refused),
                ),
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=MAX_LINE_BYTES,
                max_field_size=MAX_LINE_BYTES,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class Services(ServicesByTenant[Service]):
    """The configured services. Raises HttpServiceInvalid for an entry that is not valid; `get` raises
    HttpServiceUnknown."""

    def __init__(self, section: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        if len(section) > MAX_SERVICES:
            raise HttpServiceInvalid(
                service="(all)",
                field="http_services",
                reason=f"there are {len(section)}",
                cure=f"Name at most {MAX_SERVICES}.",
            )
        super().__init__(
            {
                name: Service(name, _settings(name, value), secrets)
                for name, value in section.items()
            },
            lambda name, known: HttpServiceUnknown(service=name, known=known),
        )


def _refused(host: str) -> HttpAddressRefused:
    return HttpAddressRefused(host=host)


def _settings(name: str, value: Any) -> ServiceSettings:
    try:
        return ServiceSettings.model_validate({"url": value} if isinstance(value, str) else value)
    except ValidationError as error:
        fault = first_fault(error)
        raise HttpServiceInvalid(
            service=name,
            field=fault.field("entry"),
            reason=fault.reason,
            cure=f"Use {', '.join(f'`{field}`' for field in ServiceSettings.model_fields)}.",
        ) from None


def _filled(service: str, header: str, value: str, secrets: Mapping[str, str]) -> str:
    """Return the value of a header with its environment variables filled in."""
    missing = [name for name in _NAMED.findall(value) if not secrets.get(name)]
    filled = _NAMED.sub(lambda found: secrets.get(found[1], ""), value)
    if missing or not filled.isascii() or not filled.isprintable():
        raise HttpServiceInvalid(
            service=service,
            field=f"headers.{header}",
            reason=f"the environment variable {missing[0]} is not set"
            if missing
            else "it contains a character that headers may not have",
            cure="Set it for the workers, without line breaks.",
        )
    return filled
