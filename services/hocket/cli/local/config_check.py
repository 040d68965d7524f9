"""Checks a configuration file as the processes would read it, without starting one: lists all errors,
and what has no effect."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import structlog

from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.reading import LITELLM_SECTIONS, SECTIONS, read_routes
from hocket.kit.process import config
from hocket.kit.process.handler_allowlist import SECTION as MODULES
from hocket.kit.process.handler_allowlist import handler_queues, listed_in
from hocket.schemas.checks.faults import Fault
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import DocumentInvalid, HocketError
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.workers.configuration import Configuration, parse
from hocket.workers.http.services import Services
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nats.services import NatsServices
from hocket.workers.sql.targets import Targets

KNOWN = SECTIONS | LITELLM_SECTIONS | frozenset(Configuration.model_fields)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a file; `notes` are about entries without effect, and models without a price."""

    models: tuple[str, ...]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


async def checked(path: Path) -> Checked:
    """Check all sections of a file, with the environment of this process; raise InvalidInput if it
    cannot be read at all."""
    sections = config.load(path)
    faults = [*_unknown(sections)]
    models: tuple[str, ...] = ()
    with structlog.testing.capture_logs() as told:
        try:
            routes = await read_routes(path)
        except DocumentInvalid as error:
            faults += _told_by(error)
        else:
            models = tuple(routes.table.names())
            await retire_missing(routes.served, {})
    faults += _of_workers(sections)
    return Checked(models, tuple(faults), tuple(map(_note, told)))


def unknown_sections(path: Path) -> tuple[Fault, ...]:
    """Return the sections of a file that no process reads; raise InvalidInput if it cannot be read."""
    return tuple(_unknown(config.load(path)))


def _of_workers(sections: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults that workers would find."""
    yield from _raised_by(lambda: parse(sections))
    yield from _raised_by(lambda: AllowedHandlers.of(listed_in(sections) or (), MODULES))
    yield from _raised_by(lambda: handler_queues(sections))
    for name, value in _entries(sections, "databases"):
        yield from _raised_by(lambda one={name: value}: Targets(one).check())  # type: ignore[misc]
    for name, value in _entries(sections, "http_services"):
        yield from _raised_by(lambda one={name: value}: Services(one, os.environ))  # type: ignore[misc]
    for name, value in _entries(sections, "nats_services"):
        yield from _raised_by(lambda one={name: value}: NatsServices(one, os.environ))  # type: ignore[misc]
    for name, value in _entries(sections, "mcp_servers"):
        yield from _raised_by(lambda one={name: value}: McpServers(one, os.environ))  # type: ignore[misc]


def _entries(sections: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    section = sections.get(name)
    if isinstance(section, Mapping):
        yield from section.items()


def _raised_by(read: Callable[[], object]) -> Iterator[Fault]:
    try:
        read()
    except HocketError as error:
        yield from _told_by(error)


def _told_by(error: HocketError) -> Iterator[Fault]:
    fields = error.fields
    place = fields.get("field", "")
    if "database" in fields:
        place = f"databases.{shown_text(fields['database'])}"
    elif "service" in fields:
        place = f"http_services.{shown_text(fields['service'])}.{place}"
    elif "nats_service" in fields:
        place = f"nats_services.{shown_text(fields['nats_service'])}.{place}"
    elif "server" in fields:
        place = f"mcp_servers.{shown_text(fields['server'])}.{place}"
    reason = str(fields["reason"]).removeprefix("Value error, ")
    yield Fault(place, reason, str(fields.get("cure", "")))
    yield from (Fault(**one) for one in fields.get("others", ()))


def _unknown(sections: Mapping[str, Any]) -> Iterator[Fault]:
    for name in sections:
        if name not in KNOWN:
            near = get_close_matches(name, KNOWN, 1)
            cure = f"Is `{near[0]}` meant?" if near else "Remove it, or correct its name."
            yield Fault(shown_text(name), "no process reads this section", cure)


def _note(told: Mapping[str, Any]) -> str:
    event = str(told["event"]).replace("_", " ")
    facts = [f"{name}: {told[name]}" for name in told if name not in ("event", "log_level")]
    return f"{event} ({', '.join(facts)})" if facts else event
