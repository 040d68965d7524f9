"""A custom node type: the function that runs its steps, and the description that is announced."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from inspect import getdoc
from typing import Any, Literal

import structlog
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUserError,
)

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.messages import MAX_DESCRIPTION_CHARS, TypeDescribed, encoded
from hocket.schemas.subjects import MAX_DESCRIPTION_BYTES, TOKEN, is_own_type
from hocket.worker.description_limits import unused_of
from hocket.worker.errors import NodeTypeInvalid
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import Function, run_function, unwrapped
from hocket.workers.runtime.execution.runner import Handler
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.models.amounts import price_of_time

MAX_CONCURRENCY = 4_096
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeType:
    """One node type; `description` defaults to the first paragraph of the function's docstring."""

    name: str
    function: Function
    version: str
    concurrency: int
    timeout_ms: float | None
    effects: Literal["none", "external"]
    usd_per_second: Decimal | None
    description: str | None

    def handler(self, threads: StepThreads) -> Handler:
        """Return a handler that runs the type's steps; functions that are not async run in `threads`."""

        async def run(context: Context) -> Any:
            return await run_function(self.function, context, threads)

        async def run_priced(context: Context) -> Any:
            began_ms = monotonic_ms()

            def so_far() -> Decimal:
                return price_of_time(monotonic_ms() - began_ms, usd_per_second)

            with context.charging(so_far):
                return await run(context)

        usd_per_second = self.usd_per_second or Decimal(0)
        return run_priced if usd_per_second else run

    def described(self, worker: str) -> TypeDescribed:
        """Return the type as the worker announces it, or raise NodeTypeInvalid."""
        try:
            described = TypeDescribed(
                worker=worker,
                type=self.name,
                version=self.version,
                description=self._description(),
                config=self._schema("config"),
                input=self._schema("input"),
                output=self._output_schema(),
                concurrency=self.concurrency,
                timeout_ms=self.timeout_ms,
                effects=self.effects,
                usd_per_second=self.usd_per_second,
            )
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            field = ".".join(map(str, fault["loc"]))
            raise self.invalid(f"`{field}`: {fault['msg']}", "Correct it.") from None
        size = len(encoded(described))
        if size > MAX_DESCRIPTION_BYTES:
            raise self.invalid(
                f"its description has {size} bytes; the limit is {MAX_DESCRIPTION_BYTES}",
                "Describe large values with smaller models, or with `dict`.",
            )
        return described

    def check(self) -> None:
        """Raise NodeTypeInvalid if the type cannot be announced."""
        if not is_own_type(self.name):
            raise self.invalid(
                "it is not the name of a node type",
                "Use two to four labels separated by dots, such as `crm.lookup`: lower-case"
                " letters, digits and `_`, at most 31 each and 63 in all.",
            )
        if not (isinstance(self.version, str) and TOKEN.fullmatch(self.version)):
            raise self.invalid(
                f"`{self.version}` is not a version",
                "Use text of letters, digits, `_` and `-`, at most 63.",
            )
        if not (isinstance(self.concurrency, int) and 1 <= self.concurrency <= MAX_CONCURRENCY):
            raise self.invalid(
                f"its concurrency is {self.concurrency!r}",
                f"Use a number from 1 to {MAX_CONCURRENCY}.",
            )
        self.described("check")

    def warn_of_unused(self) -> None:
        """Log what the platform will not use of the type's description."""
        for reason, cure in unused_of(self.described("check")):
            log.warning("description_not_used_as_a_whole", type=self.name, reason=reason, cure=cure)

    def invalid(self, reason: str, cure: str) -> NodeTypeInvalid:
        """Return the error that says why this type cannot be announced."""
        return NodeTypeInvalid(type=self.name, reason=reason, cure=cure)

    def _description(self) -> str:
        if self.description is not None:
            return self.description
        paragraph = (getdoc(unwrapped(self.function.call)) or "").partition("\n\n")[0]
        return " ".join(paragraph.split())[:MAX_DESCRIPTION_CHARS]

    def _schema(self, role: Literal["config", "input"]) -> dict[str, Any] | None:
        adapter = self.function.adapters.get(role)
        return None if adapter is None else self._of(adapter, "validation")

    def _output_schema(self) -> dict[str, Any] | None:
        annotation = self.function.returns
        if annotation in (Any, object):
            return None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        except PydanticSchemaGenerationError:
            return None  # not a type that Pydantic knows; its values may be JSON all the same
        except PydanticUserError as error:
            raise self.invalid(f"what it returns: {error.message}", "Change it.") from None
        return self._of(adapter, "serialization")

    def _of(
        self, adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"]
    ) -> dict[str, Any] | None:
        try:
            schema: Mapping[str, Any] = adapter.json_schema(mode=mode)
        except PydanticInvalidForJsonSchema:
            return None
        except PydanticUserError as error:  # a model refers to one that is not defined
            raise self.invalid(
                f"its types cannot be described: {error.message.rstrip('.')}",
                "Define the types that they refer to before the function.",
            ) from None
        return dict(schema) or None
