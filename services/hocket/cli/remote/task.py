"""Publishes one task on NATS as any client would, and follows its run until it ends.

States: published -> heard of -> ended, or timed out. The coordinator's messages on the reply inbox are
the fast path; since core NATS messages can be lost, the API (if known) is also polled every
`LOOK_INTERVAL_S`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import APIError, NoStreamResponseError

from hocket.cli.remote.api import encoded
from hocket.cli.terminal.errors import ApiRefused, BrokerUnreachable, TaskNotStored
from hocket.kit.nats.connection.encrypted_client import EncryptedClient
from hocket.kit.nats.identity import identity_of
from hocket.kit.nats.server_tls import tls_of
from hocket.kit.nats.server_urls import server_urls, without_passwords
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError, InvalidInput, PayloadTooLarge
from hocket.schemas.messages import StepChanged

CONNECT_TIMEOUT_S = 5.0
PUBLISH_TIMEOUT_S = 10.0
ELECTION_S = 20.0
"""How long a cluster may take to elect a leader for the stream of tasks: it waits 4 to 9 s first."""
TRY_S = 2.0
RETRY_S = 0.5
CONFIRM_TIMEOUT_S = 5.0
"""How long `publish` waits to hear that a run has begun or a task was refused."""
LOOK_INTERVAL_S = 2.0

Look = Callable[[], dict[str, Any] | None]
"""Returns the end of the run, `{status, output, error ...}`, if the API knows of it."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task to publish."""

    tenant: str
    pipeline: str
    input: dict[str, Any]
    key: str = field(default_factory=lambda: uuid4().hex)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The id of the task's run."""
        return ids.run_id(self.tenant, self.key)


async def publish(nats_url: str, task: Task, *, look: Look) -> bool:
    """Publish a task and tell whether its run is known to have begun within CONFIRM_TIMEOUT_S.

    False means that NATS has stored the task but no coordinator has taken it in yet. `look` returns the
    run as the API knows it, ended or not. Raises ApiRefused with intake's error if the task is refused.
    """
    first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def heard(message: Any) -> None:
        if not first.done():
            first.set_result(json.loads(message.data))

    async with _connected(nats_url) as connection:
        inbox = connection.new_inbox()
        await connection.subscribe(inbox, cb=heard)
        await _publish(
            connection, nats_url, task, {"Hocket-Reply-To": inbox, "Hocket-Progress": "1"}
        )
        looking = asyncio.create_task(_keep_looking(look, first))
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                _unless_refused(await first)
        except TimeoutError:
            return False
        finally:
            looking.cancel()
            first.cancel()
    return True


async def publish_and_follow(
    nats_url: str,
    task: Task,
    *,
    look: Look,
    on_step: Callable[[StepChanged], None],
    timeout_s: float,
    on_sending: Callable[[], None] = lambda: None,
    on_stored: Callable[[], None] = lambda: None,
) -> dict[str, Any] | None:
    """Publish a task and return the end of its run, or None on timeout.

    `on_sending` is called right before the task is sent, `on_stored` when NATS has stored it, `on_step`
    with each change of a step as it happens. Raises ApiRefused with intake's error if the task is
    refused.
    """
    end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def heard(message: Any) -> None:
        body = json.loads(message.data)
        if end.done():
            return
        if (body.get("status") == "rejected" and "run_id" not in body) or "finished_at_ms" in body:
            end.set_result(body)
        elif "step" in body:
            on_step(StepChanged.model_validate(body))

    async with _connected(nats_url) as connection:
        inbox = connection.new_inbox()
        await connection.subscribe(inbox, cb=heard)
        on_sending()
        await _publish(
            connection, nats_url, task, {"Hocket-Reply-To": inbox, "Hocket-Progress": "1"}
        )
        on_stored()
        looking = asyncio.create_task(_keep_looking(look, end))
        try:
            async with asyncio.timeout(timeout_s):
                return _unless_refused(await end)
        except TimeoutError:
            return None
        finally:
            looking.cancel()
            end.cancel()


async def _publish(connection: Client, nats_url: str, task: Task, reply: dict[str, str]) -> None:
    payload = encoded(task.input)
    headers = {
        **task.headers,
        **reply,
        "Hocket-Idempotency-Key": task.key,
        "Nats-Msg-Id": f"{task.run_id}:{task.pipeline}",
    }
    _check_size(payload, headers, connection.max_payload)
    subject = subjects.task(task.tenant, subjects.check_token("PIPELINE", task.pipeline))
    refused: Exception | None = None
    is_cluster = len(connection.servers) > 1
    try:
        async with asyncio.timeout(ELECTION_S if is_cluster else PUBLISH_TIMEOUT_S):
            while True:
                try:
                    await connection.jetstream().publish(
                        subject,
                        payload,
                        timeout=TRY_S if is_cluster else PUBLISH_TIMEOUT_S,
                        headers=headers,
                    )
                except (NoStreamResponseError, APIError) as error:
                    refused = error
                    if not is_cluster:
                        break
                    await asyncio.sleep(RETRY_S)
                except NatsTimeout:  # the stream's leader may have died before confirming
                    if not is_cluster:
                        raise
                else:
                    return
    except (NatsTimeout, TimeoutError) as error:
        if refused is None:
            waited_s = ELECTION_S if is_cluster else PUBLISH_TIMEOUT_S
            reason = f"it did not confirm the task within {waited_s:g} s"
            raise BrokerUnreachable(url=without_passwords(nats_url), reason=reason) from error
    raise _not_stored(without_passwords(nats_url), refused) from refused


def _check_size(payload: bytes, headers: dict[str, str], limit_bytes: int) -> None:
    """Raise PayloadTooLarge for a message over which the server would close the connection. The
    platform's own limit, HOCKET_MAX_TASK_BYTES, is not known here: intake refuses what exceeds it."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    room = limit_bytes - len(f"NATS/1.0\r\n{head}\r\n".encode())
    if len(payload) > room:
        raise PayloadTooLarge(size_bytes=len(payload), limit_bytes=room)


def _not_stored(url: str, refused: Exception | None) -> HocketError:
    if isinstance(refused, APIError) and refused.description:  # it is full, or its disk is
        return TaskNotStored(url=url, stream=subjects.TASKS, reason=refused.description)
    reason = f"it has no stream {subjects.TASKS}, so no Hocket uses it"
    return BrokerUnreachable(url=url, reason=reason)


async def _keep_looking(look: Look, end: asyncio.Future[dict[str, Any]]) -> None:
    while not end.done():
        found = None
        with suppress(HocketError):  # it is busy, or does not show runs to this key: NATS may tell
            found = await asyncio.to_thread(look)
        if found is not None and not end.done():
            end.set_result(found)
        await asyncio.sleep(LOOK_INTERVAL_S)


def _unless_refused(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("status") != "rejected":
        return body
    from hocket.schemas.errors import ErrorInfo

    raise ApiRefused(ErrorInfo.model_validate(body["error"]))


@asynccontextmanager
async def _connected(nats_url: str) -> AsyncIterator[Client]:
    servers, tls = server_urls(nats_url, field="--nats"), tls_of(nats_url, field="--nats")
    faults: list[Exception] = []

    async def note(error: Exception) -> None:
        faults.append(error)

    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = EncryptedClient()
            await connection.connect(
                servers,
                name="hocket-cli",
                tls=tls,
                inbox_prefix=identity_of(nats_url).inbox.encode(),
                connect_timeout=2,
                error_cb=note,
            )
    except ValueError as error:
        raise InvalidInput(
            field="--nats", reason=str(error), cure="Write nats://HOST:PORT."
        ) from error
    except (OSError, TimeoutError, NatsError) as error:
        reason = str(faults[-1] if faults else error) or "nothing is listening there"
        raise BrokerUnreachable(url=without_passwords(nats_url), reason=reason) from error
    try:
        yield connection
    finally:
        await connection.close()
