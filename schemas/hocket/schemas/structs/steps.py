"""A step as a worker reads it."""

from decimal import Decimal
from typing import Annotated, Any

import msgspec
from pydantic_core import to_json

from hocket.schemas.messages import MAX_BUNDLED, Priority, StepRequested
from hocket.schemas.structs.fields import (
    NOT_READ,
    Amount,
    Count,
    Int32,
    Labels,
    Milliseconds,
    Moment,
    Name,
    StepKey,
    are_names,
    is_amount,
    is_printable,
    is_shallow,
)

AMOUNTS = ("budget_usd", "budget_left_usd")


class RequestedStep(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of StepRequested, with amounts as text."""

    run_id: Name
    tenant: Name
    pipeline: Name
    version: Int32
    step: StepKey
    node: StepKey
    type: Name
    attempt: Int32
    input: Any
    config: dict[str, Any]
    deadline_at_ms: Moment
    slack_ms: Milliseconds
    timeout_ms: Milliseconds
    priority: Priority
    partition: Int32
    epoch: Count
    run_deadline_at_ms: Moment | None = None
    budget_usd: Amount | None = None
    budget_left_usd: Amount | None = None
    effects_external: bool = False
    held_ms: Milliseconds = 0.0
    start_by_at_ms: Moment | None = None
    dispatched_at_ms: Moment | None = None
    capability: Name | None = None
    queue: Name | None = None
    labels: Labels | None = None
    journal: bool = False
    suspends: bool = False
    calls: tuple[Name, ...] = ()
    resumption: Any = None
    """The contract's Resumption."""
    root_budget: Any = None
    """The contract's RootBudget."""
    more: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=MAX_BUNDLED - 1)] = ()
    traceparent: Name | None = None

    def contract(self) -> StepRequested:
        """Return the message of the contract."""
        return StepRequested.model_construct(**self.contract_fields())

    def contract_fields(self) -> dict[str, Any]:
        """Return the fields of that message."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["more"] = tuple(msgspec.json.decode(one) for one in self.more)
        for amount in AMOUNTS:
            if fields[amount] is not None:
                fields[amount] = Decimal(fields[amount])
        return fields


def read_step(body: bytes) -> RequestedStep:
    """Return the step in a message; raise pydantic's ValidationError if it is not a StepRequested."""
    if is_shallow(body):
        try:
            step = _decode(body)
        except NOT_READ:
            return _read_by_contract(body)
        if step.resumption is not None or step.root_budget is not None:  # few have one
            return _read_by_contract(body)
        without_amounts = step.budget_usd is None and step.budget_left_usd is None
        if (
            (is_printable(body) or _has_names(step))
            and (without_amounts or _has_amounts(step))
            and (not step.more or _has_objects(step))
        ):
            return step
    return _read_by_contract(body)


def of_contract(step: StepRequested) -> RequestedStep:
    """Return a message of the contract as a struct."""
    fields = {name: getattr(step, name) for name in RequestedStep.__struct_fields__}
    for amount in AMOUNTS:
        if fields[amount] is not None:
            fields[amount] = str(fields[amount])
    fields["more"] = tuple(msgspec.Raw(to_json(one)) for one in step.more)
    return RequestedStep(**fields)


def _read_by_contract(body: bytes) -> RequestedStep:
    return of_contract(StepRequested.model_validate_json(body))


def _has_names(step: RequestedStep) -> bool:
    names = (step.run_id, step.tenant, step.pipeline, step.step, step.node, step.type)
    may_be_none = (step.capability or "", step.queue or "", step.traceparent or "")
    return are_names(*names, *may_be_none)


def _has_amounts(step: RequestedStep) -> bool:
    return is_amount(step.budget_usd) and is_amount(step.budget_left_usd)


def _has_objects(step: RequestedStep) -> bool:
    return all(bytes(one).startswith(b"{") for one in step.more)


_decode = msgspec.json.Decoder(RequestedStep).decode
