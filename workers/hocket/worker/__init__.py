"""The SDK for custom node types: write functions that run the steps of pipelines.

```python
from hocket.worker import Context, Worker

worker = Worker()


@worker.node("crm.lookup", concurrency=8, timeout_ms=2_000)
async def lookup(lead: Lead, context: Context) -> Contact: ...
```

Run it with `hocket-worker module:worker`, or inside your own program with `async with worker.run():`.
"""

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import ChatMessage, Document
from hocket.worker.worker import Running, Worker
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context, ModelCallFailed
from hocket.workers.runtime.journal.errors import (
    CallMalformed,
    CallNotNamed,
    JournalMismatch,
    SignalMalformed,
    SignalTimedOut,
    StepFailed,
)

__all__ = [
    "CallMalformed",
    "CallNotNamed",
    "ChatMessage",
    "Context",
    "Document",
    "ErrorClass",
    "HocketError",
    "JournalMismatch",
    "ModelCallFailed",
    "Retryable",
    "Running",
    "SignalMalformed",
    "SignalTimedOut",
    "StepFailed",
    "Worker",
]
