"""The ledger process: waits for the platform's tables and streams, then books usage until stopped."""

from hocket.kit.lifecycle import Service
from hocket.kit.migrations import wait_current
from hocket.kit.streams import ensure_streams
from hocket.ledger.intake import Intake
from hocket.ledger.metrics import LedgerMetrics

POOL_SIZE = 2
TABLES_TIMEOUT_MS = 120_000.0


async def main(service: Service) -> None:
    """Book usage records until the service is asked to stop."""
    bus = await service.bus()
    await ensure_streams(bus, replicas=service.settings.stream_replicas)
    await wait_current(service.settings.database_url, TABLES_TIMEOUT_MS)
    pool = await service.pool(POOL_SIZE)
    metrics = LedgerMetrics(service.telemetry.registry)
    service.started()
    service.log.info("ledger_serving")
    await Intake(bus, pool, service.health, metrics).run(service.stopping)
