"""Validates messages as CallRequests, and describes what is wrong with those that are not."""

from pydantic import ValidationError

from hocket.gateway.api.http import bodies
from hocket.gateway.api.http.body_types import BodyInvalid
from hocket.gateway.core.errors import CallMalformed
from hocket.schemas import subjects
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.labels import reserved_among
from hocket.schemas.messages import CallRequest

MAX_SUFFIX_CHARS = 28
"""The most that the ids of a call's requests add to its own: `:t99:r999:h#` and 16 digits."""
MAX_ID_BYTES = MAX_STEP_CHARS - MAX_SUFFIX_CHARS
"""A step's call has the step's key in its id, and Postgres has the id of each request in an index."""
MAX_ATTRIBUTION_CHARS = 16_384


def checked(payload: bytes) -> CallRequest:
    """Return the request, or raise CallMalformed;
    its id and attribution must fit into a usage record.

    The body of OpenAI's API that it may hold must be one that the HTTP door would take, because what
    it asks for is counted, and sent on as it is.
    """
    try:
        request = CallRequest.model_validate_json(payload)
    except ValidationError as error:
        raise malformed(error) from error
    if not (0 < len(request.call_id.encode()) <= MAX_ID_BYTES and request.call_id.isprintable()):
        reason = f"it is not 1 to {MAX_ID_BYTES} bytes of printable characters"
        raise CallMalformed(field="call_id", reason=reason)
    if (
        len(payload) > MAX_ATTRIBUTION_CHARS  # otherwise its attribution is short enough, too
        and len(request.attribution.model_dump_json()) > MAX_ATTRIBUTION_CHARS
    ):
        reason = f"it has more than {MAX_ATTRIBUTION_CHARS} characters"
        raise CallMalformed(field="attribution", reason=reason)
    if request.chunks_to is not None and not subjects.is_inbox(request.chunks_to):
        raise CallMalformed(field="chunks_to", reason="it is not an inbox of its caller")
    return with_checked_body(request)


def with_checked_body(request: CallRequest) -> CallRequest:
    """Return a call whose body of OpenAI's API, if it has one, asks for what is counted, or raise
    CallMalformed."""
    openai = request.openai
    if openai is None:
        return request
    asked = {"model": request.model, **openai.body}
    try:
        body = bodies.checked(openai.path, asked)
    except BodyInvalid as error:
        field = f"openai.body.{error.fields['field']}"
        raise CallMalformed(field=field, reason=error.fields["reason"]) from error
    if body is asked:
        return request
    return request.model_copy(update={"openai": openai.model_copy(update={"body": body})})


def has_reserved_labels(request: CallRequest) -> bool:
    """Tell whether a call has labels that are reserved for the platform."""
    return bool(reserved_among(request.attribution.labels or ()))


def without_reserved_labels(request: CallRequest) -> CallRequest:
    """Return a call without the labels reserved for the platform, because budgets are kept by them."""
    labels = request.attribution.labels or {}
    kept = {key: value for key, value in labels.items() if not reserved_among((key,))}
    attribution = request.attribution.model_copy(update={"labels": kept or None})
    return request.model_copy(update={"attribution": attribution})


def malformed(error: ValidationError) -> CallMalformed:
    """Return the error that names the first field that is wrong."""
    fault = first_fault(error)
    return CallMalformed(field=fault.field("body"), reason=fault.reason)
