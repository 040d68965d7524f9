"""Reads documents in a separate process, which is ended if a document takes too long or too much memory.

The contents of a file can make its parser compute for hours, take all memory or crash the process
(nested tags, page trees, fonts). So a child process reads documents, with a limit of READ_TIMEOUT_S for
each and of MAX_MEMORY_BYTES.
"""

import asyncio
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Final

from hocket.workers.retrieval import chunking, extraction
from hocket.workers.retrieval.chunking import Chunk, Sizes
from hocket.workers.retrieval.errors import DocumentUnreadable
from hocket.workers.retrieval.extraction import Extracted

READ_TIMEOUT_S: Final = 120.0
MAX_MEMORY_BYTES: Final = 3 * 1024 * 1024 * 1024

Cut = tuple[Extracted, list[Chunk]]


class Reader:
    """Reads one document at a time. Must be closed."""

    def __init__(self, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._child: ProcessPoolExecutor | None = None

    async def cut(self, data: bytes, source: str, sizes: Sizes) -> Cut:
        """Return a document and its chunks; raise DocumentUnreadable."""
        if self._child is None:
            spawning = multiprocessing.get_context("spawn")
            self._child = ProcessPoolExecutor(1, mp_context=spawning, initializer=_bound_memory)
        reading = asyncio.get_running_loop().run_in_executor(self._child, _cut, data, source, sizes)
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await reading
        except TimeoutError:
            self.close()
            result = f"reading it takes longer than {self._timeout_s:g} s"
        except BrokenProcessPool:
            self.close()
            result = "reading it kills the reading process"
        except asyncio.CancelledError:
            self.close()
            raise
        if isinstance(result, str):
            raise DocumentUnreadable(source=source, reason=result)
        return result

    def close(self) -> None:
        """End the child process, whatever it is doing."""
        child, self._child = self._child, None
        if child is not None:
            processes = list((child._processes or {}).values())
            for process in processes:
                process.kill()
            child.shutdown(wait=False, cancel_futures=True)


def _bound_memory() -> None:
    with suppress(ValueError, OSError):  # the system may not support this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def _cut(data: bytes, source: str, sizes: Sizes) -> Cut | str:
    """Return a document and its chunks, or why it cannot be read."""
    try:
        document = extraction.extract(data, source)
        return document, chunking.chunks(document, source, sizes)
    except DocumentUnreadable as error:
        return str(error.fields["reason"])
    except Exception as error:  # for hostile files parsers may raise anything
        return f"its parser failed with {type(error).__name__}: {error}"[:500]
