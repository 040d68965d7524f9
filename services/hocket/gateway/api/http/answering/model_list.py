"""The list of models that a caller may use."""

from collections.abc import Callable
from typing import Any

from hocket.gateway.api.http.answering.paths import MAX_SHOWN_CHARS
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key, ModelForbidden
from hocket.gateway.core.errors import ModelNotGranted, ModelUnknown
from hocket.schemas.checks.plain_json import shown_text

Allows = Callable[[str, str], bool]
"""Tells whether a tenant may use a model."""


def allows_all(_tenant: str, _model: str) -> bool:
    """Allow every model, as without grants."""
    return True


class ModelList:
    """The models of the routing table in force, as far as the key and the tenant's grants allow them."""

    def __init__(self, registry: CallRegistry, allows: Allows = allows_all) -> None:
        self._registry = registry
        self._allows = allows

    def all(self, key: Key | None, tenant: str) -> dict[str, Any]:
        """Return the models that a caller may use."""
        return {"object": "list", "data": [_described(name) for name in self._names(key, tenant)]}

    def one(self, name: str, key: Key | None, tenant: str) -> dict[str, Any]:
        """Return a model; raise ModelForbidden or ModelNotGranted, or ModelUnknown, which names those
        that the caller may use."""
        shown = shown_text(name, MAX_SHOWN_CHARS)
        if key is not None and key.models is not None and name not in key.models:
            raise ModelForbidden(name=key.name, model=shown)
        if not self._allows(tenant, name):
            raise ModelNotGranted(tenant=tenant, model=shown)
        try:
            self._registry.table.model(name)
        except ModelUnknown:
            known = ", ".join(self._names(key, tenant))
            raise ModelUnknown(model=shown, known=known) from None
        return _described(name)

    def _names(self, key: Key | None, tenant: str) -> list[str]:
        names = self._registry.table.names()
        allowed = names if key is None or key.models is None else sorted(key.models & set(names))
        return [name for name in allowed if self._allows(tenant, name)]


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hocket"}
