"""Asks the ledger what runs, pipelines and tenants have spent, and what a run may spend.

A ledger is asked when a gateway meets an account that is not in the gateways' bucket, and from time
to time while calls over HTTP name a run, because other calls may have come without its budget. If
no ledger answers, calls go ahead with what the gateways know themselves.
"""

import os

import structlog
from pydantic import ValidationError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to, sealed
from hocket.schemas.messages import SpentAsked, SpentTold

TIMEOUT_MS = 1_000.0
NONCE_BYTES = 8

log = structlog.get_logger()
_reporting = Reporting()


class SpentBefore:
    """Asks the ledgers."""

    def __init__(self, bus: Bus, seals: Capabilities | None = None) -> None:
        self._bus = bus
        self._seals = seals

    async def ask(self, asked: SpentAsked) -> SpentTold | None:
        """Return the ledger's answer; None if no ledger answers."""
        asked = asked.model_copy(update={"nonce": os.urandom(NONCE_BYTES).hex()})
        body = asked.model_dump_json().encode()
        subject = subjects.LEDGER_SPENT
        try:
            answer = await self._bus.request(
                subject, body, timeout_ms=TIMEOUT_MS, headers=sealed(self._seals, subject, body)
            )
            if self._is_ours(body, answer.data, (answer.headers or {}).get(SEAL, "")):
                return SpentTold.model_validate_json(answer.data)
            reason = "the answer is not sealed by a ledger"
        except (BusUnavailable, ValidationError) as error:
            reason = str(error)
        if count := _reporting.due("spent_before_unknown"):
            log.warning("spent_before_unknown", tenant=asked.tenant, reason=reason, count=count)
        return None

    def _is_ours(self, asked: bytes, told: bytes, seal: str) -> bool:
        expected = answer_to(subjects.LEDGER_SPENT, asked)
        return self._seals is None or self._seals.is_sealed(seal, expected, told)
