"""Parses and compiles submitted pipelines outside the event loop.

A large document takes seconds. Other requests are answered meanwhile, and only one document per tenant
is compiled at a time, so that other tenants wait for at most one of them.
"""

import asyncio
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Any

from hocket.admin.node_types.checks import checked
from hocket.admin.node_types.registry import NodeTypes
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import MAX_VALUES, parse_document
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

MAX_AT_ONCE = 2
"""Documents compiled at once; they share one processor."""


class Compiler:
    """Compiles documents, one per tenant at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    async def compile(
        self,
        tenant: str,
        media_type: str,
        body: bytes,
        models: Container[str] | None,
        types: NodeTypes,
    ) -> tuple[Plan, list[str]]:
        """Return the plan of the document in a body, with warnings about its node types, or raise
        InvalidInput."""
        async with self._turn(tenant), self._places:
            return await asyncio.to_thread(_compiled, media_type, body, models, types)

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        lock, waiting = self._turns.get(tenant, (asyncio.Lock(), 0))
        self._turns[tenant] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns[tenant]
            self._turns[tenant] = lock, waiting - 1
            if waiting == 1:
                del self._turns[tenant]


def _compiled(
    media_type: str, body: bytes, models: Container[str] | None, types: NodeTypes
) -> tuple[Plan, list[str]]:
    plan = compile_pipeline(_document(media_type, body), known_models=models)
    return checked(plan, types)


def _document(media_type: str, body: bytes) -> Any:
    """Return the pipeline in a body; a body declared as JSON is parsed as JSON, not as YAML."""
    if media_type.lower().startswith("application/json"):
        return parse_json(body, "(document)", max_values=MAX_VALUES)
    _check_encoding(body)
    return parse_document(body)


def _check_encoding(body: bytes) -> None:
    """Raise InvalidInput for a text that is not UTF-8: a YAML parser would take UTF-16 for it, which is
    accepted nowhere else, and call other encodings a misplaced character."""
    reason = "it contains the character U+0000, as a text in UTF-16 does" if b"\0" in body else ""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 (byte {error.start}: 0x{body[error.start]:02x})"
    if reason:
        raise InvalidInput(
            field="(document)", reason=reason, cure="Send YAML or JSON as text in UTF-8."
        )
