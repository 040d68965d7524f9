"""What gateways need to share budgets: their bucket, the ledger, and who of them lives."""

from dataclasses import dataclass
from typing import Protocol

from hocket.gateway.accounting.budget_store import BudgetStore
from hocket.gateway.accounting.spent_before import SpentBefore


class Peers(Protocol):
    """Which gateways live."""

    @property
    def is_leased(self) -> bool:
        """Whether nobody can take us for dead now."""
        ...

    name: str
    live: frozenset[str]


@dataclass(frozen=True, slots=True)
class SharedBudgets:
    """The bucket, the ledger and the peers of one gateway."""

    store: BudgetStore
    ledger: SpentBefore
    peers: Peers
