"""The typed errors of a query; `component` is `sql:<database>` if the database is known."""

from hocket.schemas.errors import ErrorClass, HocketError


class SqlRefused(HocketError):
    """The query was refused: {reason}. {cure}"""

    code = "sql_refused"
    error_class = ErrorClass.INVALID


class SqlUnreadable(SqlRefused):
    """The query cannot be read as {dialect} SQL: {reason}. Send one plain SELECT statement."""

    code = "sql_unreadable"


class SqlNotOneSelect(SqlRefused):
    """The query is not exactly one SELECT: it has {found}. Send one SELECT (WITH and UNION are
    allowed) that only reads."""

    code = "sql_not_one_select"


class SqlConstructRefused(SqlRefused):
    """The query uses {construct}, which is not allowed here. {cure}"""

    code = "sql_construct_refused"


class SqlTableRefused(SqlRefused):
    """The query reads `{table}`, which is not one of the allowed tables ({allowed}). Use one of these,
    or add it to `tables` of the node and of the database."""

    code = "sql_table_refused"


class SqlFunctionRefused(SqlRefused):
    """The query calls `{function}`, which {reason}. {cure}"""

    code = "sql_function_refused"


class SqlParametersWrong(SqlRefused):
    """The query's parameters are not valid: {reason}. {cure}"""

    code = "sql_parameters_wrong"


class SqlTimeout(HocketError):
    """The query on `{database}` did not finish within {timeout_ms} ms. Give the step more time, or ask
    for less: fewer rows, an index, a narrower WHERE."""

    code = "sql_timeout"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class SqlFailed(HocketError):
    """The database `{database}` failed the query (SQLSTATE {sqlstate}): {reason}. See the database's
    log if the reason does not say enough."""

    code = "sql_failed"
    error_class = ErrorClass.PERMANENT


class SqlAnswerTooLarge(HocketError):
    """The database `{database}` sent more than {max_bytes} bytes for the query, or arrays of too many
    elements, and was cut off. Ask for fewer rows or columns, or for shorter values:
    `left(body, 1000)`, `ids[1:1000]`."""

    code = "sql_answer_too_large"
    error_class = ErrorClass.INVALID


class SqlOutOfMemory(HocketError):
    """The database `{database}` needed more than {max_bytes} bytes of memory for the queries of this
    worker. Ask for fewer rows or columns, or for shorter values: `substr(body, 1, 1000)`."""

    code = "sql_out_of_memory"
    error_class = ErrorClass.INVALID


class SqlMemoryTaken(HocketError):
    """The queries that run in this worker at once need more than {max_bytes} bytes of memory, so one
    on `{database}` got none. Try again, or give the worker fewer slots for `sql`."""

    code = "sql_memory_taken"
    error_class = ErrorClass.TRANSIENT
    retryable = True


class SqlInvalid(SqlFailed):
    """The database `{database}` rejected the query (SQLSTATE {sqlstate}): {reason}. Correct the query
    or its parameters; `CAST(:name AS type)` gives a parameter a type."""

    code = "sql_invalid"
    error_class = ErrorClass.INVALID


class SqlFailedForNow(SqlFailed):
    """The database `{database}` failed the query temporarily (SQLSTATE {sqlstate}): {reason}. It may
    succeed when it is retried."""

    code = "sql_failed_for_now"
    error_class = ErrorClass.TRANSIENT
    retryable = True


class SqlUnavailable(SqlFailed):
    """The database `{database}` cannot be reached (SQLSTATE {sqlstate}): {reason}. Check that it runs
    and that its URL is right."""

    code = "sql_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class TargetUnknown(HocketError):
    """There is no database `{database}`; configured databases: {known}. Name one of these, or
    configure it."""

    code = "sql_target_unknown"
    error_class = ErrorClass.INVALID


class TargetInvalid(HocketError):
    """The database `{database}` is not configured correctly: {reason}. {cure}"""

    code = "sql_target_invalid"
    error_class = ErrorClass.INVALID
