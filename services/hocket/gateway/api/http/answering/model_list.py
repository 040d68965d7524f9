"""The list of models that a key may call."""

from typing import Any

from hocket.gateway.api.http.answering.paths import MAX_SHOWN_CHARS
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key, ModelForbidden
from hocket.schemas.checks.plain_json import shown_text


class ModelList:
    """The models of the routing table in force."""

    def __init__(self, registry: CallRegistry) -> None:
        self._registry = registry

    def all(self, key: Key | None) -> dict[str, Any]:
        """Return the models that a key may call."""
        names = self._registry.table.names()
        allowed = names if key is None or key.models is None else sorted(key.models & set(names))
        return {"object": "list", "data": [_described(name) for name in allowed]}

    def one(self, name: str, key: Key | None) -> dict[str, Any]:
        """Return a model; raise ModelForbidden, or ModelUnknown, which names all that there are."""
        if key is not None and key.models is not None and name not in key.models:
            raise ModelForbidden(name=key.name, model=shown_text(name, MAX_SHOWN_CHARS))
        self._registry.table.model(name)
        return _described(name)


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hocket"}
