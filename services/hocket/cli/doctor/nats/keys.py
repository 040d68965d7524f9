"""Checks whether gateways and ledgers have the same key for usage records: by what ledgers have refused
lately and, if this environment has the key, by asking them with it."""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats.connection import ask
from hocket.kit.nats.dead_letters import ERROR
from hocket.kit.nats.protocol import headers_of
from hocket.kit.process.capability_key import usage_seals_of
from hocket.kit.process.settings import Settings, read
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to, sealed
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import SpentAsked, SpentTold

NAME = "usage key"
KEYS = ("HOCKET_CAPABILITY_KEY", "HOCKET_USAGE_KEY")
REFUSED_WITHIN = timedelta(days=1)
QUESTIONS = 8
"""Each question is answered by one of the ledgers, chosen at random."""
ANSWER_S = 1.0
NONCE_BYTES = 8
USAGE_LETTERS = "hocket.dlq.usage.*"
NOT_SEALED = "usage_not_sealed"
CURE = (
    "Set the same HOCKET_CAPABILITY_KEY for every coordinator, REST process, gateway and "
    "ledger, and the same HOCKET_USAGE_KEY for gateways in workers; `hocket dlq redrive` "
    "books records that are genuine."
)


async def usage_keys(connection: Client) -> list[Finding]:
    """Report whether a process's key differs, as far as that can be known."""
    refused = await _refused(connection)
    if refused is not None:
        return [refused]
    if not any(os.environ.get(name) for name in KEYS):
        return []
    try:
        seals = usage_seals_of(_settings())
    except InvalidInput as error:
        return [Finding(NAME, Verdict.FAILED, str(error), "Correct it in this environment.")]
    assert seals is not None, "one of the two is set"
    return await _asked(connection, seals)


def _settings() -> Settings:
    """Return this environment's settings of the keys; this check needs no others."""
    return read()


async def _refused(connection: Client) -> Finding | None:
    """Report what a ledger refused last, if that was recent."""
    try:
        asked = {"last_by_subj": USAGE_LETTERS}
        found = await ask(connection, f"STREAM.MSG.GET.{subjects.DLQ}", asked)
    except (NatsError, TimeoutError):
        return None  # reported by the check of streams
    message: dict[str, Any] = found.body.get("message") or {}
    if not message or _code_of(message) != NOT_SEALED:
        return None
    at = datetime.fromisoformat(message["time"])
    if datetime.now(UTC) - at > REFUSED_WITHIN:
        return None
    said = (
        f"a ledger refused usage records without the seal of its key at {at:%Y-%m-%d %H:%M:%S} UTC"
    )
    return Finding(NAME, Verdict.FAILED, said, CURE)


def _code_of(message: dict[str, Any]) -> str:
    from base64 import b64decode

    headers = headers_of(b64decode(message.get("hdrs", ""))) or {}
    try:
        return str(json.loads(headers.get(ERROR, "{}")).get("code", ""))
    except (ValueError, AttributeError):
        return ""


async def _asked(connection: Client, seals: Capabilities) -> list[Finding]:
    """Ask ledgers as gateways do: one with another key does not answer, or seals otherwise."""
    answered = 0
    for _ in range(QUESTIONS):
        asked = SpentAsked(tenant="default", run_id="hocket-doctor", nonce=_nonce())
        body = asked.model_dump_json().encode()
        headers = sealed(seals, subjects.LEDGER_SPENT, body)
        try:
            reply = await connection.request(
                subjects.LEDGER_SPENT, body, timeout=ANSWER_S, headers=headers
            )
        except NoRespondersError:
            cure = "Start: python -m hocket.ledger"
            return [Finding("ledger", Verdict.FAILED, "none responds", cure)]
        except (NatsError, TimeoutError):
            continue
        seal = (reply.headers or {}).get(SEAL, "")
        if not seals.is_sealed(seal, answer_to(subjects.LEDGER_SPENT, body), reply.data):
            said = "a ledger responds without this environment's key: it may have none"
            return [Finding(NAME, Verdict.FAILED, said, CURE)]
        SpentTold.model_validate_json(reply.data)
        answered += 1
    if answered < QUESTIONS:
        said = (
            f"{QUESTIONS - answered} of {QUESTIONS} requests with this environment's key were not "
            "answered: a ledger has a different key, or is slow"
        )
        return [Finding(NAME, Verdict.FAILED, said, CURE)]
    return [Finding(NAME, Verdict.OK, "ledgers use this environment's key")]


def _nonce() -> str:
    return os.urandom(NONCE_BYTES).hex()
