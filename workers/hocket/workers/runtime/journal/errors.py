"""Errors of journals and of the operations that they record."""

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError


class JournalFault(HocketError):
    """The step's journal cannot be used: {reason}."""

    code = "journal_fault"


class JournalMismatch(JournalFault):
    """The handler asks for `{asked}` where an earlier attempt did `{done}` (number {ordinal}{where}).
    Its code changed while the step was in progress, or what it does depends on something outside the
    journal. Restore the previous code for this step, or let the run fail and run it again. Take times
    and random numbers from `context.now()` and `context.random()`; what runs side by side needs its
    own branches (`context.branch`)."""

    code = "journal_mismatch"


class JournalUnavailable(JournalFault):
    """The step's journal cannot be used now: {reason}. What the handler does cannot be kept, so it
    stops; another attempt continues."""

    code = "journal_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class JournalIncomplete(JournalFault):
    """The beginning of the step's journal is gone: {reason}. What was done cannot be told from what
    was not, so the handler stops."""

    code = "journal_incomplete"


class JournalMissing(JournalFault):
    """This step has no journal: its coordinator does not provide one. Upgrade the platform to the
    release of this worker; `context.step` and the like need a journal."""

    code = "journal_missing"
    error_class = ErrorClass.INVALID


class JournalFull(JournalFault):
    """The step's journal has no room: {reason}. Do less in one step, or split it into several
    nodes."""

    code = "journal_full"
    error_class = ErrorClass.INVALID


class JournalRefused(JournalFault):
    """The platform did not give access to the step's journal: {reason}. The worker and the platform
    may be of incompatible releases."""

    code = "journal_refused"
    error_class = ErrorClass.INVALID


class JournalTaken(JournalFault):
    """Another worker now has this step, so this attempt stops."""

    code = "journal_taken"
    error_class = ErrorClass.CANCELLED


class AttemptEnded(HocketError):
    """The attempt has ended: nothing is kept or counted any more of what its handler left running.
    Have the handler await the tasks that it starts, such as in an `asyncio.TaskGroup`."""

    code = "attempt_ended"
    error_class = ErrorClass.INVALID


class OtherEventLoop(HocketError):
    """The handler uses its `context` on an event loop of its own (`asyncio.run` in a function that is
    not async), but what a context does runs on the worker's loop. Make the handler async (`async def`)
    and await the call."""

    code = "other_event_loop"
    error_class = ErrorClass.INVALID


class CannotSuspend(JournalFault):
    """This step cannot wait for a signal, or sleep for long: its coordinator does not suspend steps.
    Upgrade the platform to the release of this worker."""

    code = "cannot_suspend"
    error_class = ErrorClass.INVALID


class CallNotNamed(HocketError):
    """The handler calls `{name}`, but its node `{node}` does not name it: it has {known}. Add it under
    `calls` of the node and apply the pipeline, on a platform of this worker's release or a later
    one."""

    code = "call_not_named"
    error_class = ErrorClass.INVALID


class CallTooLarge(HocketError):
    """What the handler passes to `{name}` has {size_bytes} bytes; the limit is {limit_bytes} for a
    worker without blobs. Pass less, or configure blobs (`blobs` in the configuration)."""

    code = "call_too_large"
    error_class = ErrorClass.INVALID


class CallMalformed(HocketError):
    """What `{name}` returned is not what the handler accepts: `{field}`: {reason}. Make `returns`
    allow it, or make the node return what the handler reads."""

    code = "call_malformed"
    error_class = ErrorClass.INVALID


class SignalTimedOut(HocketError):
    """The signal `{name}` did not arrive within {timeout_s} s. Raise `timeout_s`, or send it
    earlier."""

    code = "signal_timed_out"
    error_class = ErrorClass.TIMEOUT


class SignalMalformed(HocketError):
    """The signal `{name}` is not what the handler accepts: `{field}`: {reason}. It was received and is
    not waited for again: have the handler catch this and wait again, or send a valid one to another
    run."""

    code = "signal_malformed"
    error_class = ErrorClass.INVALID


class StepFailed(HocketError):
    """`{name}` failed: {reason}"""

    code = "step_failed"

    def __init__(self, name: str, error: ErrorInfo) -> None:
        super().__init__(name=name, reason=error.message)
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the error of the failed operation, so that a graph can branch on its code and class."""
        return self.error
