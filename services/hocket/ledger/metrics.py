"""The ledger's metrics for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class LedgerMetrics:
    """Records written, repeated and dead-lettered; batch sizes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter("hocket_ledger_written", "Calls booked.", registry=registry)
        self.repeated = Counter(
            "hocket_ledger_repeated",
            "Records of calls that were already booked.",
            registry=registry,
        )
        self.opened = Counter(
            "hocket_ledger_opened", "Calls announced by gateways as starting.", registry=registry
        )
        self.refused = Counter(
            "hocket_ledger_refused",
            "Calls reported by gateways as refused without calling a backend.",
            registry=registry,
        )
        self.buried = Counter(
            "hocket_ledger_buried", "Records moved to the dead letters.", registry=registry
        )
        self.unsealed = Counter(
            "hocket_ledger_unsealed",
            "Messages without the seal of one of this platform's gateways; they are not booked.",
            registry=registry,
        )
        self.unkept = Counter(
            "hocket_ledger_letters_not_kept",
            "Messages not kept as dead letters, because they carry no cost or there were too many.",
            registry=registry,
        )
        self.unkept_usd = Counter(
            "hocket_ledger_unkept_usd",
            "Cost claimed by unsealed messages that were not kept as dead letters.",
            registry=registry,
        )
        self.batch = Histogram(
            "hocket_ledger_batch_records",
            "Records per transaction.",
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
