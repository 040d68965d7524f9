"""The `warm:` section of a backend: the tier it is kept at, how it is started, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from string import Formatter
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.warming.schedule import MAX_WINDOW_MS, Schedule
from hocket.gateway.core.warming.warm_leases import Level, Startup

Action = Literal["provision", "load", "unload", "release", "ready"]
ACTIONS: tuple[Action, ...] = ("provision", "load", "unload", "release", "ready")
DriverKind = Literal["triton", "webhook", "exec"]
TIERS = {"cold": Level.COLD, "warm": Level.PROVISIONED, "hot": Level.READY}
"""The level kept by default per tier: nothing, a machine, or a machine with the model loaded."""

DEFAULT_IDLE_S = 300.0
DEFAULT_MIN_WARM_S = 60.0
DEFAULT_TIMEOUT_S = 900.0
DEFAULT_LOAD_S = 30.0
MAX_S = 86_400.0
MAX_SCHEDULES = 32
MAX_ARGUMENTS = 64
_PLACEHOLDERS = frozenset({"url", "model", "backend", "replica"})

_FIELDS = frozenset(
    "tier webhook exec provision_s load_s idle_s min_warm_s timeout_s schedules forecast "
    "usd_per_hour".split()
)
_SCHEDULE_FIELDS = frozenset({"cron", "for_s", "tier", "time_zone"})
_OLD_ZONE = "timezone"
"""The former name of `time_zone`, which is still read."""


@dataclass(frozen=True, slots=True)
class DriverSpec:
    """How a replica's server is started and stopped.

    Each action is a command, or a URL that is sent a POST (`ready`: a GET). The placeholders
    `{url}`, `{model}`, `{backend}` and `{replica}` are filled in.
    """

    kind: DriverKind
    urls: Mapping[str, str] = field(default_factory=dict, hash=False)
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    token: SecretStr | None = None

    @property
    def releases(self) -> bool:
        """Whether it can release a machine; otherwise unloading is all there is to do."""
        return "release" in self.urls or "release" in self.commands


@dataclass(frozen=True, slots=True)
class WarmRule:
    """How a backend's replicas are kept warm; times in milliseconds. `startup` is assumed until it
    has been measured."""

    driver: DriverSpec
    tier: Level = Level.COLD
    startup: Startup = field(default_factory=Startup)
    idle_ms: float = DEFAULT_IDLE_S * 1000
    min_warm_ms: float = DEFAULT_MIN_WARM_S * 1000
    timeout_ms: float = DEFAULT_TIMEOUT_S * 1000
    schedules: tuple[Schedule, ...] = ()
    forecast: bool = False
    usd_per_hour: Decimal = Decimal(0)


def read_rule(entry: Fields, kind: str) -> WarmRule | None:
    """Return the rule of a backend's entry, None if it has no `warm:`; raise RoutingInvalid."""
    if "warm" not in entry:
        return None
    warm = entry.under("warm")
    warm.only(_FIELDS)
    if kind == "function":
        cure = "Remove `warm`; a function runs in the gateway."
        raise wrong(warm.where, "a function is not started or stopped", cure)
    if "warm_tier" in entry:
        raise wrong(entry.at("warm_tier"), "`warm` sets it too", "Write `warm: {tier: ...}` only.")
    return WarmRule(
        driver=_driver(warm, kind),
        tier=TIERS[warm.choice("tier", tuple(TIERS), "cold")],
        startup=Startup(_ms(warm, "provision_s", 0.0), _ms(warm, "load_s", DEFAULT_LOAD_S)),
        idle_ms=_ms(warm, "idle_s", DEFAULT_IDLE_S),
        min_warm_ms=_ms(warm, "min_warm_s", DEFAULT_MIN_WARM_S),
        timeout_ms=max(_ms(warm, "timeout_s", DEFAULT_TIMEOUT_S), 1.0),
        schedules=_schedules(warm),
        forecast=warm.flag("forecast", False),
        usd_per_hour=warm.money("usd_per_hour") or Decimal(0),
    )


def _ms(warm: Fields, name: str, default_s: float) -> float:
    return warm.number(name, default_s, 0.0, MAX_S) * 1000


def _driver(warm: Fields, kind: str) -> DriverSpec:
    ways = [name for name in ("webhook", "exec") if name in warm]
    if len(ways) > 1:
        raise wrong(warm.at("exec"), "`webhook` is set as well", "Keep one of them.")
    if not ways and kind == "triton":
        return DriverSpec("triton")
    if not ways:
        cure = "Write `webhook: {load: URL, unload: URL}` or `exec: {load: [command], ...}`."
        raise wrong(warm.where, "nothing says how the server is started", cure)
    way = warm.under(ways[0])
    if ways[0] == "exec":
        way.only(ACTIONS)
        _needs_load(way)
        return DriverSpec("exec", commands={name: _command(way, name) for name in way})
    way.only((*ACTIONS, "token"))
    _needs_load(way)
    urls = {name: _url(way, name) for name in way if name != "token"}
    return DriverSpec("webhook", urls=urls, token=way.secret("token"))


def _needs_load(way: Fields) -> None:
    if "load" not in way:
        raise wrong(way.at("load"), "it is missing", "Set at least how the model is loaded.")


def _url(way: Fields, name: str) -> str:
    value = way.text(name)
    if not value.startswith(("http://", "https://", "{url}")):
        cure = "Write for example http://127.0.0.1:9000/start, or {url}/load."
        raise wrong(way.at(name), "it is not a URL", cure)
    return _filled(way, name, value)


def _command(way: Fields, name: str) -> tuple[str, ...]:
    value: Any = way.raw(name)
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= MAX_ARGUMENTS
        or not all(isinstance(one, str) and one for one in value)
    ):
        cure = f"Write a list of 1 to {MAX_ARGUMENTS} words, e.g. [./start.sh, '{{url}}']."
        raise wrong(way.at(name), "it is not a command", cure)
    return tuple(_filled(way, name, one) for one in value)


def _filled(way: Fields, name: str, value: str) -> str:
    try:
        plain = all(
            field is None or (field in _PLACEHOLDERS and not form and not conversion)
            for _, field, form, conversion in Formatter().parse(value)
        )
    except ValueError:
        plain = False
    if not plain:  # a format width, for example, could make a text of any length
        cure = "Use {url}, {model}, {backend} and {replica}; double other braces."
        raise wrong(way.at(name), "it contains an unknown placeholder", cure)
    return value


def _schedules(warm: Fields) -> tuple[Schedule, ...]:
    if "schedules" not in warm:
        return ()
    found = warm.items("schedules", "Write `- {cron: '0 8 * * 1-5', for_s: 36000}`.")
    if len(found) > MAX_SCHEDULES:
        raise wrong(warm.at("schedules"), "there are too many", f"Use up to {MAX_SCHEDULES}.")
    return tuple(_schedule(warm.of(one, where)) for where, one in found)


def _schedule(entry: Fields) -> Schedule:
    entry.only(_SCHEDULE_FIELDS | ({_OLD_ZONE} & set(entry)))
    cron = entry.text("cron")
    if "for_s" not in entry:
        raise wrong(entry.at("for_s"), "it is missing", "Set how many seconds it stays warm.")
    found = Schedule(
        cron,
        entry.number("for_s", 0.0, 0.001, MAX_WINDOW_MS / 1000) * 1000,
        TIERS[entry.choice("tier", ("hot", "warm"), "hot")],
        _zone(entry),
    )
    if fault := found.fault():
        raise wrong(entry.at("cron"), *fault)
    return found


def _zone(entry: Fields) -> str:
    """Return the time zone of a schedule, UTC by default; raise RoutingInvalid for one that does not
    exist or is given under both names."""
    name = _OLD_ZONE if _OLD_ZONE in entry else "time_zone"
    if name == _OLD_ZONE and "time_zone" in entry:
        reason = "it is the old name of `time_zone`, which is set too"
        raise wrong(entry.at(_OLD_ZONE), reason, f"Remove `{_OLD_ZONE}`.")
    zone = entry.text(name) if name in entry else "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        cure = "Write a name such as Europe/Berlin."
        raise wrong(entry.at(name), f"there is no time zone `{zone}`", cure) from None
    return zone
