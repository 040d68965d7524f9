"""Asks the gateway which logical models exist."""

import json
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects

GATEWAY_TIMEOUT_MS = 1_000
"""How long to wait for an answer; without one, model names are not checked, and the reply says so."""

UNCHECKED = "The gateway did not answer, so the names of the models were not checked."

log = structlog.get_logger(__name__)


async def known_models(bus: Bus) -> set[str] | None:
    """Return the names of all models and aliases, or None if no gateway answers."""
    try:
        reply = await bus.request(subjects.GATEWAY_MODELS, b"{}", timeout_ms=GATEWAY_TIMEOUT_MS)
    except (BusUnavailable, TimeoutError) as error:
        log.warning("models_not_known", error=str(error) or type(error).__name__)
        return None
    return set(_names(json.loads(reply.data)))


def _names(document: Any) -> list[str]:
    models = document.get("models", ()) if isinstance(document, dict) else document
    names = [model["name"] if isinstance(model, dict) else str(model) for model in models]
    aliases = document.get("aliases", {}) if isinstance(document, dict) else {}
    return [*names, *aliases]
