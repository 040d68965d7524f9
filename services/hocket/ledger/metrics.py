"""What the ledger counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class LedgerMetrics:
    """Records written, seen again and buried; batch sizes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter("hocket_ledger_written", "Calls booked.", registry=registry)
        self.repeated = Counter(
            "hocket_ledger_repeated",
            "Records of calls that were booked already.",
            registry=registry,
        )
        self.opened = Counter(
            "hocket_ledger_opened", "Calls that gateways said they begin.", registry=registry
        )
        self.refused = Counter(
            "hocket_ledger_refused",
            "Calls that gateways said nobody was asked for.",
            registry=registry,
        )
        self.buried = Counter(
            "hocket_ledger_buried", "Records moved to the dead letters.", registry=registry
        )
        self.unsealed = Counter(
            "hocket_ledger_unsealed",
            "Messages without the seal of a gateway of this platform; none of them is booked.",
            registry=registry,
        )
        self.unkept = Counter(
            "hocket_ledger_letters_not_kept",
            "Messages that became no dead letter: they tell of no cost, or too many came.",
            registry=registry,
        )
        self.unkept_usd = Counter(
            "hocket_ledger_unkept_usd",
            "What messages without a seal that became no dead letter claim to have cost.",
            registry=registry,
        )
        self.batch = Histogram(
            "hocket_ledger_batch_records",
            "Records in one transaction.",
            buckets=BATCH_BUCKETS,
            registry=registry,
        )

    def observe(self, *, new: int, repeated: int, opened: int, refused: int = 0) -> None:
        """Count one committed batch."""
        self.written.inc(new)
        self.repeated.inc(repeated)
        self.opened.inc(opened)
        self.refused.inc(refused)
        self.batch.observe(new + repeated + opened + refused)
