"""Ways to start and stop the server behind a replica: Triton's model control, webhooks, commands.

A driver performs one action and returns when it is done, or raises StartFailed; the replica manager
sets the time limit and decides what to do next. Actions that are not configured succeed at once.
`ready` tells whether the model can be asked; None if that cannot be determined.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import aiohttp

from hocket.gateway.backends.protocol import Backend, Loadable
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.warming.warm_rule import Action, DriverSpec
from hocket.schemas.errors import ErrorClass, HocketError

PROBE_TIMEOUT_MS = 2_000.0
MAX_SAID = 400
MAX_SAID_BYTES = 4 * MAX_SAID
PIPE_BYTES = 64 * 1024
MOST_READS = 16
"""The most reads of a pipe; enough to empty it, unless another process keeps writing."""
_OK = 300
_READY = 200


class StartFailed(HocketError):
    """The replica `{replica}` could not {action}: {reason}. Check its server, and `warm:` in the
    configuration."""

    code = "start_failed"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class Driver(Protocol):
    """Starts and stops the replicas of one model."""

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        """Perform an action; raise StartFailed."""
        ...

    async def ready(self) -> bool | None:
        """Return whether the model can be asked; None if that cannot be determined."""
        ...

    async def close(self) -> None:
        """Close any connections."""
        ...


Borrow = AbstractAsyncContextManager[Backend]
"""The replica's backend, entered for each use."""


def build_driver(spec: BackendSpec, borrow: Borrow) -> Driver:
    """Return the driver of a replica that has a `warm:` rule."""
    assert spec.warm is not None, spec.key
    driver = spec.warm.driver
    if driver.kind == "triton":
        return TritonDriver(spec.key, borrow)
    if driver.kind == "webhook":
        return WebhookDriver(spec.key, _filled(driver, spec), driver)
    return CommandDriver(spec.key, {k: _words(v, spec) for k, v in driver.commands.items()})


class TritonDriver:
    """Loads and unloads the model through its server's model control;
    the machine itself is not managed."""

    def __init__(self, key: str, borrow: Borrow) -> None:
        self._key = key
        self._borrow = borrow

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        """Load or unload the model."""
        if action not in ("load", "unload"):
            return
        async with self._borrow as backend:
            if not isinstance(backend, Loadable):
                raise StartFailed(replica=self._key, action=action, reason="it cannot be loaded")
            try:
                act = backend.load if action == "load" else backend.unload
                await act(timeout_ms=timeout_ms)
            except HocketError as error:
                raise StartFailed(replica=self._key, action=action, reason=str(error)) from error

    async def ready(self) -> bool | None:
        """Ask the server whether the model is ready."""
        async with self._borrow as backend:
            if not isinstance(backend, Loadable):
                return None
            try:
                return await backend.ready(timeout_ms=PROBE_TIMEOUT_MS)
            except HocketError:
                return False

    async def close(self) -> None:
        """Nothing is held."""


class WebhookDriver:
    """Sends a POST to a URL for each action.

    2xx means done; after 202 the `ready` URL is polled until it returns 200. Redirects are not
    followed, so that only configured URLs are asked.
    """

    def __init__(self, key: str, urls: Mapping[str, str], driver: DriverSpec) -> None:
        self._key = key
        self._urls = urls
        self._headers = {}
        if driver.token is not None:
            self._headers["Authorization"] = f"Bearer {driver.token.get_secret_value()}"
        self._session: aiohttp.ClientSession | None = None

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        """Request an action and wait until it is done."""
        url = self._urls.get(action)
        if url is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                async with self._open().post(url, allow_redirects=False) as response:
                    status = response.status
                    content = await response.content.read(MAX_SAID)
                    said = content.decode("utf-8", "replace")
                if status >= _OK:
                    reason = f"{url} answered with status {status}: {said[:MAX_SAID]}"
                    raise StartFailed(replica=self._key, action=action, reason=reason)
                if status == 202 and action == "load" and "ready" in self._urls:
                    await self._until_ready()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or f"not done within {timeout_ms / 1000:g} s"
            raise StartFailed(replica=self._key, action=action, reason=reason) from error

    async def ready(self) -> bool | None:
        """Ask the `ready` URL, which answers 200 once the model can be asked."""
        if "ready" not in self._urls:
            return None
        try:
            async with (
                asyncio.timeout(PROBE_TIMEOUT_MS / 1000),
                self._open().get(self._urls["ready"], allow_redirects=False) as response,
            ):
                return response.status == _READY  # a 202 says that it is still loading
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _until_ready(self) -> None:
        pause_s = FIRST_POLL_S
        while not await self.ready():
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * POLL_FACTOR, MAX_POLL_S)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(keepalive_timeout=KEEPALIVE_S),
            )
        return self._session


KEEPALIVE_S = 60.0
FIRST_POLL_S = 0.05
POLL_FACTOR = 1.2
MAX_POLL_S = 2.0


class CommandDriver:
    """Runs a command for each action; exit code 0 means done.

    A command that takes too long is killed together with its process group; processes that it
    leaves running when it ends are not touched.
    """

    def __init__(self, key: str, commands: Mapping[str, tuple[str, ...]]) -> None:
        self._key = key
        self._commands = commands

    async def do(self, action: Action, *, timeout_ms: float) -> None:
        """Run the command of an action to its end."""
        if action not in self._commands:
            return
        code, said = await self._run(self._commands[action], timeout_ms)
        if code:
            reason = f"the command ended with {code}: {said[-MAX_SAID:]}"
            raise StartFailed(replica=self._key, action=action, reason=reason)

    async def ready(self) -> bool | None:
        """Run the `ready` command."""
        if "ready" not in self._commands:
            return None
        code, _ = await self._run(self._commands["ready"], PROBE_TIMEOUT_MS)
        return code == 0

    async def close(self) -> None:
        """Nothing is held."""

    async def _run(self, command: tuple[str, ...], timeout_ms: float) -> tuple[int | str, str]:
        said = _LastWords()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=said.writing,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            said.end()
            return "no start", str(error)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                code = await process.wait()
            return code, said.end()
        except TimeoutError:
            return "a timeout", f"not done within {timeout_ms / 1000:g} s"
        finally:
            said.end()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


class _LastWords:
    """The last part of a command's stderr output, up to its exit.

    Processes it leaves running may keep its stderr open; they are not waited for, and get an error
    if they write to it later.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._loop = asyncio.get_running_loop()
        self._reading: int | None
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._read)

    def _read(self) -> bool:
        """Read what is available; return whether there may be more."""
        assert self._reading is not None
        try:
            more = os.read(self._reading, PIPE_BYTES)
        except BlockingIOError:
            return False
        self._tail = (self._tail + more)[-MAX_SAID_BYTES:]
        if not more:
            self._loop.remove_reader(self._reading)
        return bool(more)

    def end(self) -> str:
        """Stop reading and return the output collected."""
        if self._reading is not None:
            os.close(self.writing)
            for _ in range(MOST_READS):
                if not self._read():
                    break
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = None
        return self._tail.decode(errors="replace").strip()


def _filled(driver: DriverSpec, spec: BackendSpec) -> dict[str, str]:
    return {action: _text(url, spec) for action, url in driver.urls.items()}


def _words(command: tuple[str, ...], spec: BackendSpec) -> tuple[str, ...]:
    return tuple(_text(word, spec) for word in command)


def _text(template: str, spec: BackendSpec) -> str:
    return template.format(
        url=spec.base_url.removesuffix("/v1"),
        model=spec.target,
        backend=spec.name,
        replica=spec.replica,
    )
