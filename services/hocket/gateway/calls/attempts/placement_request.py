"""What the call scheduler needs to know about a call."""

from hocket.gateway.calls.call import Call
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.capacity.slot import PlacementRequest
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.routing.history import Kind
from hocket.gateway.core.routing.replica_choice import CallFacts
from hocket.schemas.messages import Priority


def placement_request(call: Call, kind: Kind, scheduler: CallScheduler) -> PlacementRequest:
    """Return the request for a slot for the next attempt of a call."""
    request, requires = call.request, call.request.requires
    facts = CallFacts(
        kind[0],
        fast=scheduler.is_fast(kind, request_content.embeds(request)),
        urgent=request.priority is Priority.INTERACTIVE,
        tried=tuple(call.tried),
        min_quality=requires.min_quality,
        labels=tuple(requires.labels.items()),
        residency=requires.residency,
        prompt=call.prompt,
        until_ms=request.deadline_at_ms,
        tenant=request.attribution.tenant,
        fields=call.fields,
        too_dear=frozenset(call.too_dear),
    )
    return PlacementRequest(
        facts,
        kind,
        request.priority,
        request.deadline_at_ms,
        useful_until_ms=request.useful_until_ms,
        is_typical=call.is_typical,
        in_pieces=call.relay is not None,
    )
