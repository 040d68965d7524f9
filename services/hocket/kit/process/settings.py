"""Settings of a process, from its environment; built in `__main__` and handed in.

`NATS_URL` and `DATABASE_URL` are the names that every platform gives; the rest begins with
`HOCKET_`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hocket.kit.process.setting_types import (
    AccessKey,
    Algorithms,
    DatabaseUrl,
    EmptyIsNone,
    Folder,
    GroupRoles,
    Host,
    HostNames,
    HttpUrl,
    Issuer,
    Keys,
    Listed,
    Origins,
    PrivateHosts,
    RootPath,
    Secret,
    TenantPeriods,
    Text,
    Weights,
    Words,
)
from hocket.schemas.checks.faults import Fault, faults_of, refusal, usual_fault
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

DEFAULT_KEY_REQUESTS_PER_S = 5_000.0
BLOBS_STAY_DAYS = 190
"""By default, large values are kept for so many days longer than runs: the longest wait, the longest
`ttl_ms` of a cached step, and some days more."""


class Settings(BaseSettings):
    """See the fields; each is read from the variable `HOCKET_<NAME>`."""

    model_config = SettingsConfigDict(
        env_prefix="HOCKET_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    nats_url: Text = Field(
        "nats://127.0.0.1:4222", validation_alias=AliasChoices("HOCKET_NATS_URL", "NATS_URL")
    )
    """URL of the NATS server; for a cluster, several URLs separated by commas. With TLS, certificates
    are added as parameters: `tls://a:4222,b:4222?ca=/tls/ca.crt&cert=/tls/tls.crt&key=/tls/tls.key`.
    Like every secret, it can be read from a file named by `NATS_URL_FILE`, which every `hocket` command
    and `hocket-worker` read."""
    database_url: DatabaseUrl = Field(
        "postgresql://hocket@127.0.0.1:5432/hocket",
        validation_alias=AliasChoices("HOCKET_DATABASE_URL", "DATABASE_URL"),
    )
    """URL of the Postgres database; for requirements, see docs/how-to/postgres.md."""
    data_dir: Folder = Path("~/.local/share/hocket").expanduser()
    """Folder for data, logs, journals and blobs."""
    config: Annotated[Folder | None, EmptyIsNone] = None
    """YAML configuration file for models, budgets, databases, services and workers: its sections are
    listed below."""
    handlers: Words | None = None
    """What `python` nodes may run: modules (including their submodules) and single functions
    (`module:function`), separated by commas."""
    partitions: int = Field(4, ge=1, le=1_024)
    """Number of shards of runs; fixed for the life of an installation."""
    instance: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")
    """Name of this process, unique among processes of its kind. A process restarted under the same
    name takes over from its predecessor at once. Defaults to the host name and the process ID."""
    stream_replicas: int = Field(1, ge=1, le=5)
    """Number of servers in a NATS cluster that store each stream and bucket; use 3 in production."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged lines."""
    log_format: Literal["json", "console"] = "json"
    """`json`: one JSON object per line, and what libraries log as text (further lines of it begin with
    `|`); `console`: human-readable lines."""
    health_host: Host = "127.0.0.1"
    """Address on which `/healthz`, `/readyz` and `/metrics` are served."""
    health_port: int = Field(0, ge=-1, le=65_535)
    """Port of the health server; 0: any free port; -1: none."""
    drain_delay_s: float = Field(0.0, ge=0, le=600)
    """Seconds for which gateways and the REST service go on as before after they are asked to stop,
    while `/readyz` already answers 503, so that proxies and load balancers learn of it before the doors
    close (docs/how-to/edge.md). Their supervisor must allow 30 s more before it kills them."""
    otlp_endpoint: Annotated[HttpUrl | None, EmptyIsNone] = None
    """OTLP over HTTP endpoint to which ledgers send traces of ended runs, such as
    `http://collector:4318/v1/traces`; by default, none are sent (docs/reference/traces.md). Headers and
    certificates are set with OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_HEADERS` ..."""
    trace_ratio: float = Field(0.1, ge=0, le=1)
    """Share of traces that are sent regardless of the run's outcome. Traces that the caller samples
    are always sent, and so are those of runs that failed, were late, slow or expensive."""
    trace_slow_ms: float = Field(30_000, ge=0)
    """Traces of runs that take longer than this, in ms, are always sent; 0 turns this rule off."""
    trace_expensive_usd: float = Field(1, ge=0)
    """Traces of runs that cost at least this much, in US dollars, are always sent; 0 turns this rule
    off."""
    min_free_disk_mib: int = Field(0, ge=0)
    """Free disk space, in MiB, below which no new work is accepted, measured on the data folder's
    disk; 0: not monitored. `hocket up` sets it if one of its embedded servers writes there."""
    keep_runs_days: int = Field(30, ge=0, le=36_500)
    """Days for which ended runs are kept, with their steps; 0 means forever, here and below. An
    idempotency key identifies a run for the same time: docs/how-to/retention.md."""
    keep_rejected_days: int = Field(7, ge=0, le=36_500)
    """Days for which refused tasks are kept as rejected runs."""
    keep_usage_days: int = Field(400, ge=0, le=36_500)
    """Days for which the ledger keeps model calls; those of the current month stay in any case, because
    budgets count them."""
    keep_durations_days: int = Field(180, ge=0, le=36_500)
    """Days for which a pipeline's duration estimates are kept while it is not used."""
    keep_blobs_days: int | None = Field(None, ge=0, le=36_500)
    """Days for which a large value is kept that is neither stored again nor read. By default, 190 more
    than runs are kept, so 220: that covers the longest wait and the longest `ttl_ms` of a cached step,
    too. Workers need the same values of this and of HOCKET_KEEP_RUNS_DAYS as ledgers."""
    keep_content_days: int = Field(30, ge=0, le=36_500)
    """Days for which stored prompts and answers are kept (the section `content:` of the configuration
    decides what is stored; docs/how-to/content.md), and lines logged by handlers
    (docs/how-to/logs.md)."""
    keep_by_tenant: TenantPeriods = {}
    """Shorter retention periods for single tenants, in days, as JSON:
    `{"acme": {"runs": 7, "usage": 90, "content": 1}}` (docs/how-to/retention.md)."""
    max_task_bytes: int = Field(512 * 1024, ge=1_024)
    """Maximum size of a task's body, in bytes."""
    tenant_weights: Weights = {}
    """Weights by which tenants' ready steps share the workers, as JSON: `{"acme": 3}`; the default is
    1."""
    max_runs: int = Field(20_000, ge=1)
    """Number of runs in a coordinator's memory at which no more tasks are accepted: about 10 KB each,
    for runs of a few steps. Runs that wait for a person are not in memory."""
    dispatch_gate: bool = True
    """Whether ready steps wait for a free slot in the coordinator, where they can be ordered;
    otherwise they go to the stream at once, first come, first served within a lane."""
    dispatch_order: Literal["slack", "arrival"] = "slack"
    """Order of steps that wait for a slot: by class, tenant and slack, or by arrival (for
    comparison)."""
    interactive_share: float = Field(0.125, ge=0, le=0.5)
    """Share of a node type's slots that other classes leave free while interactive steps arrive."""
    tenant_reserve: float = Field(0.125, ge=0, le=0.5)
    """Share of a node type's slots that no single tenant may use while other tenants' steps arrive."""
    scaling_horizon_s: float = Field(60.0, ge=0.1, le=3_600)
    """Seconds from requesting a worker until it takes steps: how far ahead
    `hocket_worker_slots_wanted` looks (docs/explanation/scaling.md)."""
    gateway_host: Host = "127.0.0.1"
    """Address on which the gateway's HTTP door listens."""
    gateway_port: int = Field(0, ge=-1, le=65_535)
    """Port of the gateway's HTTP door; 0: any free port; -1: no HTTP door."""
    gateway_answers_after: Literal["journal", "flush"] = "journal"
    """What the gateway waits for before it answers. `journal`: the usage record is in its journal, which
    survives a crash of any process but not a power failure; `flush`: NATS has flushed it to disk."""
    capability_key: Keys | None = None
    """Secret of the capabilities with which dispatched steps are answered
    (docs/explanation/forgery.md): at least 32 characters; of several, separated by commas, the first
    one signs. Must be the same for coordinators, the REST service, gateways and ledgers; never give
    it to workers. Without it, the first two use one stored in Postgres, and gateways and ledgers
    check nothing."""
    nats_access_url: Annotated[Secret | None, EmptyIsNone] = None
    """URL of the NATS server for the user `access` in its own account. Together with the seed below,
    it lets the REST service decide which keys may connect to NATS (docs/reference/nats-access.md).
    Without both, none may."""
    nats_access_seed: Annotated[Secret | None, EmptyIsNone] = None
    """Seed of the key that signs these decisions, created by `hocket nats accounts`; its public part
    is in the servers' configuration."""
    usage_key: Keys | None = None
    """Secret with which gateways seal usage records for the ledger and run charges for coordinators,
    in the same form as the capability key; derived from that key by default. Intended for workers
    with a gateway inside, which must not have the capability key."""
    asks_for_seals: bool = True
    """Whether coordinators accept only sealed log events, and ledgers only sealed usage records. Turn
    it off while replacing, one by one, coordinators and gateways of a release without seals."""
    api_host: Host = "127.0.0.1"
    """Address on which the REST API listens."""
    api_port: int = Field(8_080, ge=0, le=65_535)
    """Port of the REST API; 0: any free port."""
    admin_key: Annotated[AccessKey | None, EmptyIsNone] = None
    """The first key, with the role admin for all tenants. The REST service creates it at startup if
    it does not exist: `hk_`, 12 hexadecimal digits, `_` and 64 more. Alternatively, use `hocket keys
    create --in-database` (docs/reference/access.md)."""
    oidc_issuer: Annotated[Issuer | None, EmptyIsNone] = None
    """Identity provider (OpenID Connect) whose tokens the REST API and the gateway's HTTP door
    accept, given as its issuer: `https://login.example.com/realms/main` (docs/reference/sign-in.md).
    Plain http only on this machine."""
    oidc_client_id: Annotated[Text | None, EmptyIsNone] = None
    """Client ID of this platform at the identity provider."""
    oidc_client_secret: Annotated[Secret | None, EmptyIsNone] = None
    """Client secret of the platform, with which people sign in to the console; none if it is a public
    client."""
    oidc_cli_client_id: Annotated[Text | None, EmptyIsNone] = None
    """Client ID of the command line at the identity provider: a public client that redirects to the
    loopback address (`http://127.0.0.1`, any port), for signing in with `hocket login --sso`."""
    oidc_audiences: Listed = ()
    """Accepted values of a token's `aud`; by default, only the platform's client ID. The command line's
    client ID is added."""
    oidc_groups_claim: Text = "groups"
    """Where tokens list groups: a claim, or a path with dots, such as `realm_access.roles`."""
    oidc_roles: GroupRoles = {}
    """Role of each group in one tenant, or with `*` in all tenants, as JSON:
    `{"ml-team": "developer@acme", "platform": "admin@*"}`. Users in none of these groups are refused."""
    oidc_algorithms: Algorithms = ("RS256", "ES256")
    """Accepted signature algorithms of tokens; must be asymmetric."""
    public_url: Annotated[HttpUrl | None, EmptyIsNone] = None
    """Public URL of the REST service, without HOCKET_ROOT_PATH: `https://hocket.example.com`. The
    identity provider redirects users to it; by default, they return to the address of their request.
    If it is https, browsers send the console's cookie over nothing else."""
    key_requests_per_s: float = Field(DEFAULT_KEY_REQUESTS_PER_S, gt=0, le=1_000_000)
    """Maximum requests per second with one key that a process of the REST API, or of the gateway's
    HTTP door, accepts, unless the key has its own rate. Bursts of twice as many are allowed."""
    allowed_hosts: HostNames = ()
    """Host names under which the REST API and the gateway's HTTP door accept requests, in addition to
    `localhost`, IP addresses and the host they listen on: `hocket.example.com, *.svc.cluster.local`. See
    docs/reference/http-security.md."""
    webhook_private_hosts: PrivateHosts = ()
    """Hosts with private addresses that webhooks may use, on any port and also without TLS: `localhost,
    hooks.internal`. See docs/how-to/webhooks.md."""
    allowed_origins: Origins = ()
    """Origins whose web pages may use the REST API and the gateway's HTTP door, such as
    `https://console.example.com`; by default, none."""
    root_path: RootPath = Field("", pattern=r"^(/[A-Za-z0-9_.~-]{1,64}){0,8}$")
    """Path under which a proxy serves the REST API and the console, such as `/hocket`. It may not begin
    like the service's own paths: `/console`, `/v1`, `/docs`, `/sign-in`, `/openapi.json`, `/healthz`,
    `/readyz`."""

    @property
    def blob_days(self) -> int:
        """Days for which large values are kept: by default, more than their runs; 0 means forever."""
        if self.keep_blobs_days is not None:
            return self.keep_blobs_days
        return self.keep_runs_days and self.keep_runs_days + BLOBS_STAY_DAYS


def read(**given: Any) -> Settings:
    """Return the settings of this process, those `given` before its environment's, or raise
    InvalidInput naming each variable that is wrong. What it holds is in no error: it may be a secret."""
    try:
        return Settings(**given)
    except ValidationError as error:
        faults = faults_of(error, field_of=_field_of, fault_of=_fault_of)
    raise refusal(InvalidInput, faults)


def _field_of(place: tuple[int | str, ...]) -> str:
    name, *inner = map(str, place)
    return ".".join([_variable_at(name), *map(shown_text, inner)])


def _fault_of(complaint: Mapping[str, Any], field: str) -> Fault:
    """Return a fault that says nothing of the value."""
    if complaint["type"] != "value_error":
        usual = usual_fault(complaint, field)
        return usual._replace(cure=f"{usual.cure} See docs/reference/settings.md.")
    reason = str(complaint["msg"]).removeprefix("Value error, ")
    cure = "See docs/reference/settings.md for what it may be."
    return Fault(field, f"{reason[:1].lower()}{reason[1:]}", cure)


def _variable_at(place: str) -> str:
    """Return the variable that pydantic means: a setting with two names has that of the first."""
    if place in Settings.model_fields:
        return variable_of(place)
    return place if place in os.environ else place.removeprefix("HOCKET_")


def variable_of(field: str) -> str:
    """Return the environment variable of a setting."""
    known = Settings.model_fields.get(field)
    alias = known.validation_alias if known is not None else None
    if isinstance(alias, AliasChoices):
        return str(alias.choices[-1])
    return f"HOCKET_{field.upper()}"
