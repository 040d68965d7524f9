"""What a gateway needs to share budgets: the bucket, the ledger, and which gateways are alive."""

from dataclasses import dataclass
from typing import Protocol

from hocket.gateway.accounting.budget_store import BudgetStore
from hocket.gateway.accounting.spent_before import SpentBefore


class Peers(Protocol):
    """Which gateways are alive."""

    @property
    def is_leased(self) -> bool:
        """Whether no other gateway can consider this one dead now."""
        ...

    name: str
    live: frozenset[str]


@dataclass(frozen=True, slots=True)
class SharedBudgets:
    """The bucket, the ledger and the peers of one gateway."""

    store: BudgetStore
    ledger: SpentBefore
    peers: Peers
