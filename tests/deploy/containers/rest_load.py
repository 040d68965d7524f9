"""Tasks for a platform in containers, submitted over its REST service, and checks of what became of
them."""

import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cached_property
from typing import Any

EVERY_S = 0.2
BACK_S = 120.0
TRIES = 300
RETRY_S = 0.4
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
PIPELINE: dict[str, Any] = {
    "pipeline": "containers_test",
    "slo_ms": 600_000,
    "input": {"type": "object"},
    "nodes": {
        "first": {**ECHO, "with": {"n": 1}},
        "second": {**ECHO, "with": {"n": "{{ nodes.first.output.n }}"}},
    },
    "output": {"n": "{{ nodes.second.output.n }}"},
}


class Failed(Exception):
    """Something is not as it must be."""


class Rest:
    """The REST service of a platform in containers, at addresses of which at least one answers."""

    def __init__(self, addresses: Callable[[], list[str]], key: Callable[[], str]) -> None:
        self._addresses = addresses
        self._ask_key = key

    @cached_property
    def _key(self) -> str:
        return self._ask_key()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the first address that can be reached."""
        headers = {"Content-Type": "application/json", "X-Api-Key": self._key}
        data = None if body is None else json.dumps(body).encode()
        lost: OSError = ConnectionError("no address")
        for address in self._addresses():
            request = urllib.request.Request(
                address + path, data=data, headers=headers, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError:
                raise
            except OSError as error:
                lost = error
        raise lost


class Load(threading.Thread):
    """Submits a task every EVERY_S; each is repeated under its key until REST has accepted it."""

    def __init__(self, rest: Rest) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self._rest = rest
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            self._give(secrets.token_hex(8))
            self._stop_asked.wait(EVERY_S)

    def end(self) -> None:
        """Stop submitting, and wait until the last task is accepted."""
        self._stop_asked.set()
        self.join(BACK_S)

    def wait_for(self, more: int) -> None:
        """Wait until `more` further tasks are accepted."""
        wanted, until = len(self.accepted) + more, time.monotonic() + BACK_S
        while len(self.accepted) < wanted:
            if time.monotonic() > until or not self.is_alive():
                raise Failed(f"REST accepted nothing for {BACK_S:g} s")
            time.sleep(0.1)

    def _give(self, key: str) -> None:
        body = {"pipeline": PIPELINE["pipeline"], "input": {}, "idempotency_key": key}
        for _ in range(TRIES):
            try:
                self.accepted.append(self._rest.ask("POST", "/v1/runs", body)["run_id"])
            except (OSError, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code == 422:
                    raise Failed(error.read().decode()) from error
                time.sleep(RETRY_S)
            else:
                return

    def check(self) -> None:
        """Check that every accepted run exists and succeeds."""
        left = dict.fromkeys(self.accepted)
        until = time.monotonic() + BACK_S
        states: dict[str, str] = {}
        while left and time.monotonic() < until:
            for run_id in list(left):
                try:
                    states[run_id] = self._rest.ask("GET", f"/v1/runs/{run_id}")["status"]
                except urllib.error.HTTPError as error:
                    states[run_id] = f"HTTP {error.code}"
                if states[run_id] == "succeeded":
                    del left[run_id]
        if left:
            first = self._rest.ask("GET", f"/v1/runs/{next(iter(left))}")
            raise Failed(
                f"{len(left)} of {len(self.accepted)} runs: { {i: states[i] for i in left} }; "
                f"the first: {first}"
            )
