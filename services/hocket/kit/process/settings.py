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
    HttpUrl,
    Issuer,
    Keys,
    Listed,
    Secret,
    TenantPeriods,
    Text,
    Weights,
    Words,
)
from hocket.schemas.checks.faults import Fault, faults_of, refusal
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

DEFAULT_KEY_REQUESTS_PER_S = 5_000.0


class Settings(BaseSettings):
    """See the fields; each is read from the variable `HOCKET_<NAME>`."""

    model_config = SettingsConfigDict(
        env_prefix="HOCKET_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    nats_url: Text = Field(
        "nats://127.0.0.1:4222", validation_alias=AliasChoices("HOCKET_NATS_URL", "NATS_URL")
    )
    """The NATS server; several of a cluster are separated by commas. With TLS, certificates are
    named behind them: `tls://a:4222,b:4222?ca=/tls/ca.crt&cert=/tls/tls.crt&key=/tls/tls.key`. Like
    each secret, it may be in a file that `NATS_URL_FILE` names, which `hocket serve` reads."""
    database_url: DatabaseUrl = Field(
        "postgresql://hocket@127.0.0.1:5432/hocket",
        validation_alias=AliasChoices("HOCKET_DATABASE_URL", "DATABASE_URL"),
    )
    """The Postgres database; what it needs: docs/how-to/postgres.md."""
    data_dir: Folder = Path("~/.local/share/hocket").expanduser()
    """The folder for data, logs, journals and blobs."""
    config: Annotated[Folder | None, EmptyIsNone] = None
    """One YAML file with the sections `models:` (routing) and `databases:` (SQL targets)."""
    handlers: Words | None = None
    """What `python` nodes may run: modules (with what is below them) and single functions
    (`module:function`), with commas between them."""
    partitions: int = Field(4, ge=1, le=1_024)
    """Shards of runs; fixed for the life of an installation."""
    instance: str | None = Field(None, pattern=r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
    """The name of this process among its kind; one that is started again under the name of a former
    one takes its place at once. By default the host's name and the process id."""
    stream_replicas: int = Field(1, ge=1, le=5)
    """On how many servers of a NATS cluster streams and buckets are kept: 3 for production."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are logged."""
    log_format: Literal["json", "console"] = "json"
    """One JSON object per line, or lines for people."""
    health_host: Host = "127.0.0.1"
    """Where `/healthz`, `/readyz` and `/metrics` are served."""
    health_port: int = Field(0, ge=-1, le=65_535)
    """0: any free port; -1: none."""
    otlp_endpoint: Annotated[HttpUrl | None, EmptyIsNone] = None
    """Where ledgers send traces of ended runs by OTLP over HTTP, such as
    `http://collector:4318/v1/traces`; without it nowhere (docs/reference/traces.md). Headers and
    certificates are in OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_HEADERS` ..."""
    trace_ratio: float = Field(0.1, ge=0, le=1)
    """The part of the traces that are sent, whatever became of the run. Those whose caller keeps the
    trace are sent, too, and those of runs that failed, were late, slow or expensive."""
    trace_slow_ms: float = Field(30_000, ge=0)
    """From how long a run on its trace is sent; 0: only one that was late."""
    trace_expensive_usd: float = Field(1, ge=0)
    """From what cost of a run on its trace is sent; 0: whatever it cost."""
    min_free_disk_mib: int = Field(0, ge=0)
    """Free space, in MiB, of the data folder's disk below which no new work is taken; 0: not
    watched. `hocket up` sets it where a server of its own writes there."""
    keep_runs_days: int = Field(30, ge=0, le=36_500)
    """For how long ended runs are kept, with their steps; 0 is for ever, here and below. An
    idempotency key names a run for as long: docs/how-to/retention.md."""
    keep_rejected_days: int = Field(7, ge=0, le=36_500)
    """For how long tasks that were refused are kept as rejected runs."""
    keep_usage_days: int = Field(400, ge=0, le=36_500)
    """For how long the ledger keeps model calls."""
    keep_durations_days: int = Field(180, ge=0, le=36_500)
    """For how long the estimates of a pipeline's durations are kept when it is not used."""
    keep_blobs_days: int = Field(220, ge=0, le=36_500)
    """For how long a large value is kept that nobody stores again or reads: longer than runs, the
    longest wait and the longest `ttl_ms` of a cached step together."""
    keep_content_days: int = Field(30, ge=0, le=36_500)
    """For how long prompts and answers are kept that the configuration's section `content:` has kept
    (docs/how-to/content.md), and lines that handlers logged (docs/how-to/logs.md)."""
    keep_by_tenant: TenantPeriods = {}
    """Shorter periods of single tenants, in days, as JSON: `{"acme": {"runs": 7, "usage": 90, "content":
    1}}` (docs/how-to/retention.md)."""
    max_task_bytes: int = Field(512 * 1024, ge=1_024)
    """The longest body of a task, in bytes."""
    tenant_weights: Weights = {}
    """How ready steps of tenants share the workers, as JSON: `{"acme": 3}`; 1 for all others."""
    max_runs: int = Field(20_000, ge=1)
    """Runs that a coordinator has in memory before no more tasks are taken in: about 10 KB each,
    for runs of a few steps. Those that wait for a person are not in memory."""
    dispatch_gate: bool = True
    """Whether ready steps wait for a free slot in the coordinator, where they can be ordered;
    without it they go to the stream at once, first come first served within a lane."""
    dispatch_order: Literal["slack", "arrival"] = "slack"
    """How steps that wait for a slot are ordered: by class, tenant and slack, or as they came, to
    see what that would be like."""
    interactive_share: float = Field(0.125, ge=0, le=0.5)
    """The part of a node type's slots that other classes leave free while interactive steps
    come."""
    tenant_reserve: float = Field(0.125, ge=0, le=0.5)
    """The part of a node type's slots that no single tenant takes while steps of others come."""
    scaling_horizon_s: float = Field(60.0, ge=0.1, le=3_600)
    """How long it takes until a worker that is asked for takes steps: how far
    `hocket_worker_slots_wanted` looks ahead (docs/explanation/scaling.md)."""
    gateway_host: Host = "127.0.0.1"
    """Where the gateway's HTTP door listens."""
    gateway_port: int = Field(0, ge=-1, le=65_535)
    """0: any free port; -1: no HTTP door."""
    gateway_answers_after: Literal["journal", "flush"] = "journal"
    """What an answer of the gateway waits for: its usage record in the gateway's journal, which
    outlives every process and not the loss of power, or flushed to the disk by NATS."""
    capability_key: Keys | None = None
    """The secret of the capabilities by which dispatched steps are answered
    (docs/explanation/forgery.md): at least 32 characters, several separated by commas, of which the
    first signs. The same for coordinators, the REST service, gateways and ledgers, and never for
    workers. Without it the first two use one that is kept in Postgres, and gateways and ledgers
    check nothing."""
    nats_access_url: Annotated[Secret | None, EmptyIsNone] = None
    """The NATS server once more, as the user `access` of its own account: with the secret below the
    REST service decides which keys may connect to NATS (docs/reference/nats-access.md). Without
    both none may."""
    nats_access_seed: Annotated[Secret | None, EmptyIsNone] = None
    """The seed of the key by which that is signed, which `hocket nats accounts` makes; the servers'
    configuration names its public part."""
    usage_key: Keys | None = None
    """The secret by which gateways seal usage records for the ledger, and what runs are charged for
    coordinators, like the one above; without it one that follows from the one above. For workers
    with a gateway inside, which may not have the other."""
    asks_for_seals: bool = True
    """Whether a coordinator believes only log events that are sealed, and a ledger only usage
    records; off while coordinators and gateways of a release that knows no seals are replaced one
    by one."""
    api_host: Host = "127.0.0.1"
    """Where the REST API listens."""
    api_port: int = Field(8_080, ge=0, le=65_535)
    """The port of the REST API; 0: any free one."""
    admin_key: Annotated[AccessKey | None, EmptyIsNone] = None
    """The first key, of an admin of all tenants, which the REST service makes at its start where it
    is not there yet: `hk_`, 12 hexadecimal digits, `_` and 64 more. Without it: `hocket keys create
    --in-database` (docs/reference/access.md)."""
    oidc_issuer: Annotated[Issuer | None, EmptyIsNone] = None
    """The identity provider (OpenID Connect) whose tokens REST and the gateway's HTTP door take, as it
    calls itself: `https://login.example.com/realms/main` (docs/reference/sign-in.md). Plain http
    only on this machine."""
    oidc_client_id: Annotated[Text | None, EmptyIsNone] = None
    """The name of this platform at the identity provider."""
    oidc_client_secret: Annotated[Secret | None, EmptyIsNone] = None
    """Its secret there, by which people sign in to the console; none where the provider has it as a
    public client."""
    oidc_cli_client_id: Annotated[Text | None, EmptyIsNone] = None
    """The name of the command line there, a public client that is sent back to the loopback
    (`http://127.0.0.1`, any port): with it people sign in by `hocket login --sso`."""
    oidc_audiences: Listed = ()
    """What tokens may name as their `aud`; by default only the name of this platform. That of the
    command line is added."""
    oidc_groups_claim: Text = "groups"
    """Where tokens name groups: a claim, or a path with dots, such as `realm_access.roles`."""
    oidc_roles: GroupRoles = {}
    """The role of each group in a tenant, or with `*` in all, as JSON:
    `{"ml-team": "developer@acme", "platform": "admin@*"}`. Who is in none of them is refused."""
    oidc_algorithms: Algorithms = ("RS256", "ES256")
    """By which algorithms tokens may be signed; only asymmetric ones can be named."""
    public_url: Annotated[HttpUrl | None, EmptyIsNone] = None
    """Where people reach the REST service, without HOCKET_ROOT_PATH: `https://hocket.example.com`. The
    identity provider sends them back there; by default where their request came to."""
    key_requests_per_s: float = Field(DEFAULT_KEY_REQUESTS_PER_S, gt=0, le=1_000_000)
    """Requests a second with one key that a process of REST, or of the gateway's HTTP door, takes,
    where the key has no rate of its own. Twice as many may come at once."""
    allowed_hosts: Listed = ()
    """Names under which REST and the gateway's HTTP door may be asked, beside `localhost`, IP
    addresses and the host they listen on: `hocket.example.com, *.svc.cluster.local`. See
    docs/reference/http-security.md."""
    webhook_private_hosts: Listed = ()
    """Hosts at private addresses that webhooks may name, and without TLS: `localhost, hooks.internal`.
    See docs/how-to/webhooks.md."""
    allowed_origins: Listed = ()
    """Origins whose web pages may use them, such as `https://console.example.com`; by default
    none."""
    root_path: str = Field("", pattern=r"^(/[A-Za-z0-9_.~-]{1,64}){0,8}$")
    """Below which path a proxy offers REST and the console, such as `/hocket`."""


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
    reason = str(complaint["msg"]).removeprefix("Value error, ")
    cure = "docs/reference/settings.md says what it may be."
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
