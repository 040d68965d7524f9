"""Collects what has been read of the configuration,
and builds the routing table once it is consistent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.config.fields import wrong
from hocket.gateway.core.config.table import (
    BackendSpec,
    ModelSpec,
    PoolSpec,
    RoutingTable,
    SkippedEntry,
)
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.checks.faults import Faults

EXTRACTIVE = "hocket-extractive"
EXTRACTIVE_FUNCTION = "hocket.workers.extractive.model:complete"
"""Named but never imported here: gateway and workers do not know each other's code."""
BUILT_IN_ALIASES = {"planner": EXTRACTIVE, "writer": EXTRACTIVE}


@dataclass
class ConfigBuilder:
    """Models, aliases and pools, with the places in the file where they were defined."""

    models: dict[str, ModelSpec] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    alias_fields: dict[str, str] = field(default_factory=dict)
    fallback_fields: dict[str, str] = field(default_factory=dict)
    fallbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The fallbacks of models, also of those that are refused."""
    cascade_fields: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Models whose own entry is not valid; what refers to them is not told as another fault."""
    pools: dict[str, PoolSpec] = field(default_factory=dict)
    without_effect: list[str] = field(default_factory=list)
    skipped: list[SkippedEntry] = field(default_factory=list)

    def add_alias(self, name: str, target: str, where: str) -> None:
        """Add an alias of a model, defined at `where`."""
        self.aliases[name] = target
        self.alias_fields[name] = where

    def may_serve(self, name: str) -> bool:
        """Return whether a name may be served: False for a model whose entries were all skipped."""
        return name not in self._unserved()

    def table(self) -> RoutingTable:
        """Return the table; raise RoutingInvalid for all names that clash or refer to nothing.

        The built-in model stays available, and so do its aliases unless the configuration uses
        those names.
        """
        unserved = self._unserved()
        models = dict(self.models)
        aliases = {name: target for name, target in self.aliases.items() if name not in unserved}
        if EXTRACTIVE not in models and EXTRACTIVE not in aliases:
            models[EXTRACTIVE] = ModelSpec((_EXTRACTIVE_BACKEND,))
            taken = {*models, *unserved}
            aliases = {k: v for k, v in BUILT_IN_ALIASES.items() if k not in taken} | aliases
        faults = Faults(RoutingInvalid)
        for alias, target in self.aliases.items():
            if alias not in unserved and target not in models.keys() | self.refused:
                reason = f"it points to `{target}`, which is not a model with backends"
                cure = f"Use one of: {', '.join(sorted(models))}."
                faults.add(wrong(self.alias_fields[alias], reason, cure))
        self._check_fallbacks(models, aliases, faults)
        self._check_cascades(models, aliases, faults)
        with faults.part():
            _check_backend_names(models)
        if not self.refused:
            self._check_pools(models, faults)
        faults.check()
        return RoutingTable(
            models,
            aliases,
            self.pools,
            tuple(self.without_effect),
            tuple(self.skipped),
            unserved,
        )

    def _unserved(self) -> dict[str, str]:
        """Return the names of models whose entries were all skipped, with their providers."""
        found: dict[str, list[str]] = {}
        for entry in self.skipped:
            if entry.model not in self.models:
                found.setdefault(entry.model, []).append(entry.provider)
        unserved = {model: ", ".join(dict.fromkeys(names)) for model, names in found.items()}
        others = {
            alias: unserved[target]
            for alias, target in self.aliases.items()
            if target in unserved and alias not in self.models
        }
        return unserved | others

    def _check_fallbacks(
        self, models: Mapping[str, ModelSpec], aliases: Mapping[str, str], faults: Faults
    ) -> None:
        known = {name: model.fallbacks for name, model in models.items()}
        for name, others in {**self.fallbacks, **known}.items():
            for other in others:
                with faults.part():
                    self._check_fallback(name, other, models, aliases)

    def _check_fallback(
        self, name: str, other: str, models: Mapping[str, ModelSpec], aliases: Mapping[str, str]
    ) -> None:
        where = self.fallback_fields.get(name, f"models.{name}.fallbacks")
        target = aliases.get(other, other)
        if target == name:
            raise wrong(where, "a model cannot replace itself", "Name another one.")
        if target in self.refused:
            return
        if target not in models:
            cure = f"Use one of: {', '.join(sorted({*models, *aliases}))}."
            raise wrong(where, f"there is no model `{other}`", cure)
        if models[target].cascade is not None:
            raise wrong(where, f"`{other}` is a cascade", "Name one of its stages.")

    def _check_cascades(
        self, models: Mapping[str, ModelSpec], aliases: Mapping[str, str], faults: Faults
    ) -> None:
        usable = {name for name, model in models.items() if model.cascade is None}
        for name, model in models.items():
            for stage in model.cascade.stages if model.cascade else ():
                if aliases.get(stage, stage) not in usable | self.refused:
                    cure = f"Use models with backends: {', '.join(sorted(usable))}."
                    where = self.cascade_fields[name]
                    faults.add(wrong(where, f"`{stage}` is not a model with backends", cure))

    def _check_pools(self, models: Mapping[str, ModelSpec], faults: Faults) -> None:
        named = {spec.pool for model in models.values() for spec in model.backends}
        for pool in self.pools:
            if pool not in named:
                cure = f"Write `pool: {pool}` on a backend, or remove it."
                faults.add(wrong(f"pools.{pool}", "no backend uses it", cure))


def _check_backend_names(models: Mapping[str, ModelSpec]) -> None:
    """Raise RoutingInvalid if two models name a backend alike, or two replicas have the same key."""
    seen: dict[str, str] = {}
    for model, spec in models.items():
        for name in {backend.name: None for backend in spec.backends}:
            if name in seen:
                raise wrong(
                    f"models.{model}",
                    f"the backend name `{name}` is taken by `{seen[name]}`",
                    "Give each backend its own `name`.",
                )
            seen[name] = model
    _check_keys(models)


def _check_keys(models: Mapping[str, ModelSpec]) -> None:
    """Raise RoutingInvalid if two replicas, of whatever models, have the same key: `w/1` is that of the
    first replica of `w`, and of a backend with this name."""
    seen: dict[str, str] = {}
    for model, spec in models.items():
        for key in (backend.key for backend in spec.backends):
            if key in seen:
                used = "used twice" if seen[key] == model else f"taken by `{seen[key]}`"
                cure = "Give each backend and replica its own `name`; a replica's is BACKEND/NAME."
                raise wrong(f"models.{model}", f"the backend name `{key}` is {used}", cure)
            seen[key] = model


_FREE = Decimal(0)
_EXTRACTIVE_BACKEND = BackendSpec(
    EXTRACTIVE, "function", EXTRACTIVE_FUNCTION, prices=Prices(_FREE, _FREE, _FREE, _FREE)
)
