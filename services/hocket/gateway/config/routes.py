"""The routes: a routing table with its backends built."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.gateway.config.backend_pool import ServedBackend
from hocket.gateway.core.budgets.budget_rules import NO_BUDGETS, BudgetRules
from hocket.gateway.core.config.access import Access
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.content.policy import NOTHING_KEPT, ContentPolicy
from hocket.gateway.core.experiments.arm_choice import Experiment
from hocket.gateway.core.rates.rules import NO_RATES, RateRules
from hocket.gateway.hooks.builder import BuiltHook


@dataclass(frozen=True, slots=True)
class Routes:
    """A routing table with its backends by replica key, and everything else that a reload replaces:
    budgets, keys of the HTTP door, experiments, hooks, content policy, and rates."""

    table: RoutingTable
    served: Mapping[str, ServedBackend]
    budgets: BudgetRules = NO_BUDGETS
    access: Access = field(default_factory=Access)
    experiments: tuple[Experiment, ...] = ()
    hooks: tuple[BuiltHook, ...] = ()
    content: ContentPolicy = NOTHING_KEPT
    rates: RateRules = NO_RATES
