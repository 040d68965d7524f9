"""Reads from a collector's answer which spans it refused although it accepted the request
(OTLP's partial success). Pure."""

from dataclasses import dataclass

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from hocket.schemas.checks.bounded import stored_text

MAX_MESSAGE_CHARS = 400
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """How many spans a collector refused, and what it said. A message without refused spans is a
    warning."""

    spans: int = 0
    message: str = ""


NO_REFUSAL = Refusal()


def refusal_in(body: bytes, content_type: str) -> Refusal:
    """Return what an answer says was refused; nothing, if it is no answer of OTLP."""
    answer = ExportTraceServiceResponse()
    try:
        if content_type.partition(";")[0].strip().lower() == _JSON:
            json_format.Parse(body, answer, ignore_unknown_fields=True)
        else:
            answer.ParseFromString(body)
    except (json_format.ParseError, DecodeError, ValueError, RecursionError):
        return NO_REFUSAL
    told = answer.partial_success
    message = str(stored_text(told.error_message, limit=MAX_MESSAGE_CHARS))
    return Refusal(max(told.rejected_spans, 0), message)
