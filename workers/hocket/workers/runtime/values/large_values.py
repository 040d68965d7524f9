"""Moves the large parts of outputs to blobs, and loads blobs back into inputs."""

from collections.abc import Callable, Collection
from typing import Any

from hocket.kit.blobs import BlobStore
from hocket.schemas.errors import HocketError
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.errors import BlobUnresolved
from hocket.workers.runtime.results.encoding import plain
from hocket.workers.runtime.values import references
from hocket.workers.runtime.values.blob_room import BlobRoom

ENVELOPE_BYTES = 4 * 1024
"""Room left in the message beside the references."""
MAX_UNREAD = 100
"""How many parts of one value that only look like references are looked up; the rest stays as it is."""
AGENT = "agent"
SHOWN_APART = (("previous", "results"), ("previous", "calls"))
"""The parts of an agent's input that hold what tools and models said, where not everything that looks
like a reference is one. The agent loads the results one by one."""


class LargeValues:
    """Stores and loads the blobs of steps; without a store it can do neither."""

    def __init__(self, store: BlobStore | None) -> None:
        self._store = store
        self.room = BlobRoom()

    def give_back(self, tenant: str, released_bytes: Callable[[], int]) -> None:
        """Give back the room that an attempt held and releases now."""
        self.room.give_back(tenant, released_bytes())

    async def spilled(
        self, tenant: str, output: Any, excess_bytes: int, *, is_plain: bool = False
    ) -> Any:
        """Return an output with its large parts moved to the tenant's blobs, so that its message shrinks
        by `excess_bytes`; return it unchanged if there is no store. Raises OutputNotJson, unless the
        output `is_plain` JSON already."""
        if self._store is None:
            return output
        if not is_plain:
            output = plain(output)
        excess_bytes += ENVELOPE_BYTES
        replacements: dict[references.Path, Any] = {}
        for part in references.large_parts(output, excess_bytes):
            stored = await self._store.put(tenant, part.data)
            replacements[part.path] = references.reference(stored.hash, stored.size, part.kind)
        return references.replace(output, replacements)

    async def resolved_input(self, step: RequestedStep) -> tuple[Any, int]:
        """Return a step's input with its references replaced, and the bytes of `room` that it holds."""
        besides = SHOWN_APART if step.type == AGENT else ()
        return await self.resolved(step.tenant, step.input, besides=besides)

    async def resolved(
        self,
        tenant: str,
        value: Any,
        *,
        waits: bool = True,
        besides: Collection[references.Path] = (),
    ) -> tuple[Any, int]:
        """Return an input with its references replaced by the tenant's blobs, and the bytes of `room`
        that it holds until its step has ended. The parts at the paths `besides` stay as they are.

        Waits for room if it `waits`. Raises BlobUnresolved if a blob is missing, wrong, or too large."""
        found = list(references.find_references(value, besides=besides))
        if not found:
            return value, 0
        if self._store is None:
            raise references.unresolved(found[0], "this worker has no blob store")
        references.check_resolved_size(found)
        held_bytes = await self.room.take(tenant, references.held_bytes(found), waits=waits)
        try:
            return await self._replaced(tenant, value, found), held_bytes
        except BaseException:
            self.room.give_back(tenant, held_bytes)
            raise

    async def readable(self, tenant: str, value: Any, *, waits: bool) -> tuple[Any, int]:
        """Return a value with its references replaced by the tenant's blobs, and the bytes of `room`
        that it holds until they are given back. What only looks like a reference stays as it is: others
        than workers may have written it."""
        seen = references.find_references(value, may_be_data=True)
        found = [one for one in seen if one.size <= references.MAX_RESOLVED_BYTES]
        if not found or self._store is None:
            return value, 0
        held_bytes = await self.room.take(tenant, references.held_bytes(found), waits=waits)
        try:
            return await self._replaced(tenant, value, found, may_be_data=True), held_bytes
        except BaseException:
            self.room.give_back(tenant, held_bytes)
            raise

    async def _replaced(
        self,
        tenant: str,
        value: Any,
        found: list[references.Reference],
        *,
        may_be_data: bool = False,
    ) -> Any:
        replacements: dict[references.Path, Any] = {}
        size_bytes = parts = unread = 0
        for each in found:
            try:
                references.check_resolved_size([each], size_bytes)
                data = await self._loaded(tenant, each)
                more = references.count_parts(each, data)
                references.check_parts(each, parts + more)
                replacements[each.path] = references.content(each, data)
            except BlobUnresolved:
                if not may_be_data:
                    raise
                unread += 1
                if unread == MAX_UNREAD:
                    break
                continue
            size_bytes, parts = size_bytes + each.size, parts + more
        return references.replace(value, replacements)

    async def _loaded(self, tenant: str, reference: references.Reference) -> bytes:
        assert self._store is not None
        try:
            data = await self._store.get(tenant, reference.blob)
        except HocketError as error:
            if error.retryable:  # the store does not answer, which says nothing about the blob
                raise
            raise references.unresolved(reference, str(error)) from error
        if len(data) != reference.size:
            reason = f"it has {len(data)} bytes, but the reference says {reference.size}"
            raise references.unresolved(reference, reason)
        return data
