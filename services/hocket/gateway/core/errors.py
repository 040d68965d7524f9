"""The gateway's own errors: calls and configurations that it refuses, and calls that it cannot
finish or answer."""

from typing import Any

from hocket.schemas.errors import DocumentInvalid, ErrorClass, HocketError

USER_CODE_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit, KeyboardInterrupt)
"""What functions and hooks of users may raise. `sys.exit()` in one is an error of its call, and
must not end the gateway; a cancellation is none of these, and passes through."""
USER_IMPORT_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""What their modules may raise while they are imported. Ctrl-C at the start ends the gateway."""


class RoutingInvalid(DocumentInvalid):
    """The routing table is not valid at `{field}`: {reason}. {cure}"""

    code = "routing_invalid"


class ModelUnknown(HocketError):
    """There is no model `{model}`. Known models: {known}. Add it to `models:` in the configuration or
    use one of these."""

    code = "model_unknown"
    error_class = ErrorClass.INVALID


class ModelSkipped(HocketError):
    """The model `{model}` was skipped when the configuration was read: this gateway does not reach its
    provider ({providers}). Give it a backend with an endpoint that speaks OpenAI's or Anthropic's API,
    or use another model."""

    code = "model_skipped"
    error_class = ErrorClass.INVALID


class BackendUnknown(HocketError):
    """There is no backend `{backend}`. Known backends: {known}."""

    code = "backend_unknown"
    error_class = ErrorClass.INVALID


class BackendNotLoadable(HocketError):
    """Backend `{backend}` is of kind `{kind}`, which cannot load or unload models. Only `triton` can."""

    code = "backend_not_loadable"
    error_class = ErrorClass.INVALID


class ReplicaUnknown(HocketError):
    """There is no replica `{replica}` of a backend `{backend}`. Known replicas: {known}."""

    code = "replica_unknown"
    error_class = ErrorClass.INVALID


class ReplicaNotStarted(HocketError):
    """The replica `{replica}` cannot be warmed: gateways do not start and stop it. Add `warm:` to its
    backend in the configuration."""

    code = "replica_not_started"
    error_class = ErrorClass.INVALID


class ReplicasNotTold(HocketError):
    """Nothing was changed at `{backend}`: the other gateways cannot be reached now. Try again when
    NATS is back."""

    code = "replicas_not_told"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class ExperimentUnknown(HocketError):
    """There is no arm `{arm}` of an experiment `{experiment}` that could be switched. Known: {known}."""

    code = "experiment_unknown"
    error_class = ErrorClass.INVALID


class ExperimentNotTold(HocketError):
    """The arm `{arm}` of `{experiment}` was not switched: the other gateways cannot be reached now. Try
    again when NATS is back."""

    code = "experiment_not_told"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class HookFailed(HocketError):
    """The hook `{hook}` failed: {reason}. The call was not let through; fix the hook, give it more
    time (`budget_ms`), or let calls pass without it (`on_failure: open`)."""

    code = "hook_failed"
    error_class = ErrorClass.INVALID


class CallMalformed(HocketError):
    """The call is not valid at `{field}`: {reason}. Send a CallRequest as JSON."""

    code = "call_malformed"
    error_class = ErrorClass.INVALID


class FieldNotPassed(HocketError):
    """The field `{field}` does not go to the backends of model `{model}`: it might choose another
    model, provider or price. Leave it out, or name it in `pass_fields` of a backend."""

    code = "field_not_passed"
    error_class = ErrorClass.INVALID


class CallNotAttributable(HocketError):
    """The call names the run `{run_id}` in `attribution`, but `{field}` is not what its step was
    given. Make the call through the step's context (`context.model`), or send the `capability`,
    `dispatched_at_ms` and `root_budget` of the StepRequested."""

    code = "call_not_attributable"
    error_class = ErrorClass.INVALID


class DeadlinePassed(HocketError):
    """The deadline of the call passed {late_ms} ms before a backend was asked. Give the run more time
    or the step less to do."""

    code = "deadline_passed"
    error_class = ErrorClass.TIMEOUT


class WaitTooLong(DeadlinePassed):
    """The deadline of the call passed while it waited for a backend of model `{model}`: {reason}. Give
    the run more time, put a backend into service, or add one."""


class CallIdReused(HocketError):
    """The id `{call_id}` names a call in progress that asks something else. Give each call an id of its
    own (over HTTP `X-Hocket-Call-Id`), or none."""

    code = "call_id_reused"
    error_class = ErrorClass.INVALID


class StreamNotShared(CallIdReused):
    """The id `{call_id}` names a call whose answer goes to the stream that began it. It is not kept for
    others, because it has more than text: reasoning, probabilities, or several choices. Repeat the call
    when that stream has ended, or give it an id of its own (over HTTP `X-Hocket-Call-Id`), or none:
    either makes a new call."""

    retryable = True


class GatewayFull(HocketError):
    """The gateway already holds {limit} calls. Try again later, or start another gateway."""

    code = "gateway_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class TenantFull(GatewayFull):
    """The gateway holds {limit} calls of this tenant already, and keeps what is left for others. Try
    again later, or start another gateway."""


class BackendsBusy(HocketError):
    """Every backend of model `{model}` is at its limit or resting: {reason}. Try again later, raise
    `limit`, or add a backend."""

    code = "backends_busy"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class BackendsUnavailable(HocketError):
    """No backend of model `{model}` can be asked: {reason}. Try again later, take a fallback branch, or
    add a backend."""

    code = "backends_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class BackendsCold(HocketError):
    """No backend of model `{model}` is loaded, and none can be in time: {reason}. Try again later, give
    the run more time, or keep the model warm (`warm:`)."""

    code = "backends_cold"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class NoBackendSuits(HocketError):
    """No backend of model `{model}` meets the call's requirements: {reason}. Loosen `requires`, or add
    a backend that does."""

    code = "no_backend_suits"
    error_class = ErrorClass.INVALID


class BudgetExceeded(HocketError):
    """The {level} budget of `{name}` has {budget_left_usd} of {limit_usd} USD left; the call is
    expected to cost {expected_usd} USD{held}. {cure}"""

    code = "budget_exceeded"
    error_class = ErrorClass.BUDGET

    def __init__(
        self, *, level: str, name: str, state: str = "spent", by_length: bool = True, **fields: Any
    ) -> None:
        """`state` is `reserved` if calls in progress may cost what is left, otherwise `spent`;
        `by_length` says whether a smaller `max_tokens` makes the call cheaper."""
        is_run, is_held = level == "run", state == "reserved"
        field = "budget_usd" if is_run else f"budgets.{level}s.{name}"
        cures = [
            "Raise `budget_usd` of the run (over HTTP also `X-Hocket-Budget-Usd`)"
            if is_run
            else f"Raise `{field}` in the configuration"
        ]
        if is_held:
            cures.append("try again when those calls have ended")
        elif not is_run:
            cures.append("wait for its next period")
        if by_length:
            cures.append("set a smaller `max_tokens`")
        super().__init__(
            level=level,
            name=name,
            state=state,
            field=field,
            held=", and calls in progress may cost the rest" if is_held else "",
            cure=f"{', '.join(cures)}, or use a cheaper model.",
            **fields,
        )


class ModelNotGranted(HocketError):
    """Tenant `{tenant}` has no grant for the model `{model}`. Ask an operator of the platform to add it
    to the grant `models`, or call one that `hocket grants show` lists."""

    code = "grant_missing"
    error_class = ErrorClass.INVALID


class ModelRateReached(HocketError):
    """Tenant `{tenant}` has used up its rate for the model `{model}`; there will be room in {wait_s}
    s at the earliest. Try again then, give the call more time, or raise the rate (`rates:` in the
    configuration)."""

    code = "model_rate_reached"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class BudgetsFull(HocketError):
    """The gateway keeps the budgets of {limit} tenants and pipelines that have spent something in
    their current periods, and has no room for another. Use fewer tenants and pipelines, or budgets
    that do not apply to everybody (`*`)."""

    code = "budgets_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class ModelUnpriced(HocketError):
    """A backend of model `{model}` has no known price, and a budget applies to the call. Set its
    `prices`, or set `budgets: {{unpriced: allow}}`."""

    code = "model_unpriced"
    error_class = ErrorClass.BUDGET


class CallStopped(HocketError):
    """The call was cancelled: {reason}. What it used until then is booked."""

    code = "call_cancelled"
    error_class = ErrorClass.CANCELLED


class ReplyTooLarge(HocketError):
    """The reply has at least {size_bytes} bytes; a message can carry {limit_bytes}. Ask for fewer
    embeddings at once, or lower `max_tokens`. The call is booked."""

    code = "reply_too_large"
    error_class = ErrorClass.INVALID


class ReplyUnsendable(HocketError):
    """The reply cannot be sent as JSON: {reason}. Ask again, or constrain what the model writes. The
    call is booked."""

    code = "reply_unsendable"
    error_class = ErrorClass.PERMANENT


class GatewayBroken(HocketError):
    """The gateway failed internally: {reason}. Its log has the details; please report it."""

    code = "gateway_broken"
    error_class = ErrorClass.PERMANENT


class GatewayStalled(HocketError):
    """The call was made but could not be booked in time; NATS is unavailable. What it used is booked
    when NATS is back. Do not repeat it blindly."""

    code = "gateway_stalled"
    error_class = ErrorClass.UNAVAILABLE


class JoinTimedOut(HocketError):
    """The time of this request is up, but not that of the call `{call_id}` that it joined, which goes
    on. For its answer, send the request again with the same `X-Hocket-Call-Id` and a longer
    `X-Hocket-Timeout-Ms`."""

    code = "join_timed_out"
    error_class = ErrorClass.TIMEOUT
    retryable = True
