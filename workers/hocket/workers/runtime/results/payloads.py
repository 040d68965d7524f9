"""The message of a result, which fits into the log: large parts of outputs go to blobs, and an output
that cannot be carried becomes an error."""

import asyncio
from typing import Any

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.structs.results import FinishedAttempt
from hocket.workers.errors import OutputTooLarge
from hocket.workers.runtime.results import encoding
from hocket.workers.runtime.results.failures import error_info, waiting
from hocket.workers.runtime.results.large_outputs import apart, is_large
from hocket.workers.runtime.values.large_values import LargeValues


def suspended(finished: FinishedAttempt) -> bytes:
    """Return the message of an attempt that ends because its handler waits."""
    return encoding.encode(finished, error=waiting())


async def payload_of(
    finished: FinishedAttempt,
    output: Any,
    info: ErrorInfo | None,
    tenant: str,
    large_values: LargeValues,
) -> tuple[bytes, ErrorInfo | None]:
    """Return the message of a result, which has at most MAX_RESULT_BYTES, and its error: `info`, or why
    its output cannot be carried."""
    try:
        if info is not None:
            payload = encoding.encode(finished, error=info)
        else:
            payload = await _carried(finished, output, tenant, large_values)
        encoding.check_size(payload)
    except OutputTooLarge as large:
        info = encoding.shortened(info) if info else large.info()
    except BaseException as error:  # reading a handler's output may raise anything
        if _is_stopping():
            raise
        info = error_info(error)
    else:
        return payload, info
    return encoding.encode(finished, error=info), info


async def _carried(
    finished: FinishedAttempt, output: Any, tenant: str, large_values: LargeValues
) -> bytes:
    """Return the message of an output, whose large parts are in blobs if there is a store."""
    is_plain = is_large(output)
    if is_plain:
        output = await apart(output, encoding.plain)
        payload = encoding.written(finished, output)
    else:
        payload = encoding.encode(finished, output)
    excess_bytes = len(payload) - encoding.MAX_RESULT_BYTES
    if excess_bytes <= 0:
        return payload
    if not is_plain:
        output = encoding.plain(output)
    lighter = await large_values.spilled(tenant, output, excess_bytes, is_plain=True)
    return encoding.written(finished, lighter)


def _is_stopping() -> bool:
    """Tell whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
