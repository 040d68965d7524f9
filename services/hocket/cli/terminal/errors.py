"""The errors of the command line, each with its cure, and their exit codes for scripts."""

from hocket.cli.terminal import exit_codes
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, RunUnknown
from hocket.schemas.ids import is_run_id

MISSING, TOO_MANY, FAULT = 404, 429, 500
"""The HTTP status of what is not there, of too many requests, and the lowest one of a fault of the
platform."""


class PlatformNotFound(HocketError):
    """No running Hocket was found in `{data_dir}`. Start one with `hocket up`, or name one with
    {options}."""

    code = "platform_not_found"
    error_class = ErrorClass.UNAVAILABLE


class PlatformPartUnknown(HocketError):
    """Of the platform at {api_url} only the REST API is known, and this command needs more. Name it
    with {options}, or use the platform on this machine: `hocket --context local`, without --api and
    HOCKET_API_URL."""

    code = "platform_part_unknown"
    error_class = ErrorClass.UNAVAILABLE


class ContextUnknown(HocketError):
    """There is no context `{name}` in {file}. `hocket context list` shows the existing ones; `hocket
    context add` creates one."""

    code = "context_unknown"
    error_class = ErrorClass.INVALID


class ContextTaken(HocketError):
    """There is already a context `{name}`. Choose another name, or remove it first: `hocket context
    remove {name}`."""

    code = "context_taken"
    error_class = ErrorClass.INVALID


class ContextsUnsafe(HocketError):
    """{file} contains keys, but other users of this machine may read or write it. Restrict it: `chmod
    600 {file}`; and have keys that others may have read replaced (`hocket keys rotate`)."""

    code = "contexts_unsafe"
    error_class = ErrorClass.INVALID


class ContextsUnreadable(HocketError):
    """The contexts in {file} cannot be used: {reason}. Fix or remove the file."""

    code = "contexts_unreadable"
    error_class = ErrorClass.INVALID


class LoginNeedsContext(HocketError):
    """The command uses {used}, and a key is stored only with a context. Use one: `hocket context add
    NAME https://HOST`, then `hocket --context NAME login`."""

    code = "login_needs_context"
    error_class = ErrorClass.INVALID


class ApiUnreachable(HocketError):
    """The API at {url} does not answer: {reason}. Check that Hocket runs there (`hocket doctor`)."""

    code = "api_unreachable"
    error_class = ErrorClass.UNAVAILABLE


class AddressUnusable(HocketError):
    """The server cannot listen on {host}:{port}: {reason}. Choose others with `--host` and `--port`;
    port 0 is any free one."""

    code = "address_unusable"
    error_class = ErrorClass.UNAVAILABLE


class PipelinesUnknown(HocketError):
    """`--pipelines` names {unknown}, which this tenant does not have, or has archived. It has: {known}.
    Correct the names, or apply the pipelines first (`hocket pipeline apply FILE`)."""

    code = "pipelines_unknown"
    error_class = ErrorClass.INVALID


class KeyNeeded(HocketError):
    """This address answers only requests with a key. Send `Authorization: Bearer KEY`, a key of the
    platform (`hocket keys create`)."""

    code = "key_needed"
    error_class = ErrorClass.INVALID


class AnswerNotUnderstood(HocketError):
    """This release of the command does not understand the answer of the API at {url} ({reason}). Check
    that Hocket runs there, and which release it is: `hocket doctor`, `hocket version`."""

    code = "answer_not_understood"
    error_class = ErrorClass.UNAVAILABLE


class SchemaMissing(HocketError):
    """The database that DATABASE_URL names cannot be used, as the schema is not there: run `hocket
    migrate`. ({reason})"""

    code = "schema_missing"
    error_class = ErrorClass.INVALID


class RunNotFound(HocketError):
    """There is no run `{run_id}`, and no call names it. `hocket runs list` shows the existing runs."""

    code = "run_unknown"
    error_class = ErrorClass.INVALID


class PrivilegeMissing(HocketError):
    """The login that DATABASE_URL names lacks a privilege: {reason}. Use the login that owns Hocket's
    schema."""

    code = "privilege_missing"
    error_class = ErrorClass.INVALID


class BrokerUnreachable(HocketError):
    """The NATS server at {url} does not answer: {reason}. Check that it runs (`hocket doctor`)."""

    code = "broker_unreachable"
    error_class = ErrorClass.UNAVAILABLE


class TaskNotStored(HocketError):
    """The NATS server at {url} does not store the task in the stream {stream}: {reason}. Nothing was
    submitted. Check the platform (`hocket doctor`), and send the task again."""

    code = "task_not_stored"
    error_class = ErrorClass.UNAVAILABLE


class ApiRefused(HocketError):
    """{message}"""

    def __init__(self, error: ErrorInfo, status: int = 0) -> None:
        super().__init__(message=error.message)
        self._error = error
        self.status = status
        """The HTTP status; 0 if it did not come over HTTP."""

    def info(self) -> ErrorInfo:
        """Return the error as the API sent it."""
        return self._error


class FileUnreadable(HocketError):
    """`{path}` cannot be read: {reason}. Name an existing file; `-` is standard input."""

    code = "file_unreadable"
    error_class = ErrorClass.INVALID


class FileUnwritable(HocketError):
    """`{path}` cannot be written: {reason}. Name a file in an existing folder that you may write
    to."""

    code = "file_unwritable"
    error_class = ErrorClass.INVALID


class OutputUnwritable(HocketError):
    """What this command says cannot be written: {reason}. Make room where its standard output goes, or
    send that elsewhere."""

    code = "output_unwritable"
    error_class = ErrorClass.UNAVAILABLE


class EmbeddingFailed(HocketError):
    """The model `{model}` returned no vectors: {reason}"""

    code = "embedding_failed"


class AuditUnchecked(HocketError):
    """The audit log could not be checked {place}: {reason}"""

    code = "audit_unchecked"
    error_class = ErrorClass.UNAVAILABLE


class EndUnknown(HocketError):
    """How {what} ends is not known: {reason} It may go on{shown_by}."""

    code = "end_unknown"
    error_class = ErrorClass.UNAVAILABLE


class ProcessNotReady(HocketError):
    """The process `{process}` is not ready: {reason}. Its log is `{log_path}`; the last lines are:
    {log_tail}"""

    code = "process_not_ready"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class ProcessUnknown(HocketError):
    """There is no process `{process}` here. Known processes: {known}."""

    code = "process_unknown"
    error_class = ErrorClass.INVALID


def exit_code(error: HocketError) -> int:
    """Return 2 if the user has to change the command, 3 if the answer is not known, otherwise 1."""
    if isinstance(error, AuditUnchecked | EndUnknown):
        return exit_codes.UNCHECKED
    invalid = error.info().error_class is ErrorClass.INVALID
    return exit_codes.BAD_INPUT if invalid else exit_codes.FAILED


def is_missing(error: HocketError) -> bool:
    """Tell whether the API has no such thing, or not any more."""
    return isinstance(error, ApiRefused) and error.status == MISSING


def retry_after_s(error: HocketError) -> float | None:
    """Return for how long the API asks to be left alone, after too many requests; None if it did not
    say that there were."""
    if not isinstance(error, ApiRefused) or error.status != TOO_MANY:
        return None
    after_ms = error.info().details.get("retry_after_ms")
    return after_ms / 1000 if isinstance(after_ms, int | float) else 0.0


def may_pass(error: HocketError) -> bool:
    """Tell whether the platform may answer a moment later: it has too many requests, or restarts."""
    if isinstance(error, ApiRefused):
        return error.status == TOO_MANY or error.status >= FAULT
    return isinstance(error, ApiUnreachable)


def may_appear(error: HocketError, run_id: str) -> bool:
    """Tell whether the API does not know a run that it may know later."""
    is_unknown = isinstance(error, ApiRefused) and error.info().code == RunUnknown.code
    return is_unknown and is_run_id(run_id)
