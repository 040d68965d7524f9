"""Contexts: the platforms that the command line can talk to, each with its URL and credentials, in a
file that only its user can read (`~/.config/hocket/contexts.json`).

A key is only ever sent to the URL of its own context.
"""

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from hocket.schemas.errors import HocketError

LOCAL = "local"
"""The context of the platform running in the data folder, which needs no entry."""
CONTEXT_ENV = "HOCKET_CONTEXT"
MAX_CONTEXTS = 200
MAX_HOST_CHARS = 253
MAX_FILE_BYTES = 4 * 1024 * 1024
LOCK_WAIT_S = 60.0
"""How long a command waits for another one that changes the contexts: it may be renewing a token."""
LOCK_INTERVAL_S = 0.05
"""The lock is tried this often: waiting in the system call itself has no time limit."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_URL = re.compile(r"[!-~]{1,2048}", re.ASCII)
"""No spaces or control characters, which are not valid in a request."""
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Context:
    """One platform: its URL, its default tenant, and its credentials: a key, or an identity provider's
    token and refresh token."""

    api_url: str
    tenant: str | None = None
    key: str | None = None
    issuer: str | None = None
    client_id: str | None = None
    refresh_token: str | None = None
    expires_at: str | None = None
    """When the token expires, in seconds of Unix time."""

    def shown(self, key: str | None, **provider: str | None) -> "Context":
        """Return a copy with other credentials."""
        return Context(self.api_url, self.tenant, key, **provider)


@dataclass(frozen=True)
class Contexts:
    """All contexts, and which one is used if none is named."""

    current: str = LOCAL
    named: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context | None:
        """Return a context, or None for that of the data folder; raise ContextUnknown."""
        if name == LOCAL:
            return None
        if name not in self.named:
            from hocket.cli.terminal.errors import ContextUnknown

            raise ContextUnknown(name=name, file=contexts_file())
        return self.named[name]

    def put(self, name: str, context: Context) -> "Contexts":
        """Return a copy with a context added or replaced; raise InvalidInput."""
        _check_name(name)
        _check_url(context.api_url)
        named = {**self.named, name: context}
        if len(named) > MAX_CONTEXTS:
            raise _invalid(
                "name", f"there would be more than {MAX_CONTEXTS}", "Remove some that are not used."
            )
        return replace(self, named=named)

    def without(self, name: str) -> "Contexts":
        """Return a copy without a context; raise ContextUnknown. If it was the current one, `local`
        becomes current."""
        self.get(name)
        named = {known: one for known, one in self.named.items() if known != name}
        return Contexts(LOCAL if self.current == name else self.current, named)


def contexts_file() -> Path:
    """Return the path of the contexts file (XDG base directory specification)."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return root / "hocket" / "contexts.json"


def read_contexts() -> Contexts:
    """Return the contexts, empty if there is no file; raise ContextsUnsafe or ContextsUnreadable."""
    from hocket.cli.terminal.errors import ContextsUnreadable, ContextsUnsafe

    file = contexts_file()
    try:
        with file.open("rb") as opened:
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                raise ContextsUnsafe(file=file)
            told = json.loads(opened.read(MAX_FILE_BYTES))
        named = {str(name): _context(one) for name, one in told["contexts"].items()}
        return Contexts(str(told.get("current", LOCAL)), named)
    except (FileNotFoundError, NotADirectoryError):  # a service's home may be /dev/null
        return Contexts()
    except OSError as error:
        raise ContextsUnreadable(file=file, reason=error.strerror) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ContextsUnreadable(file=file, reason="it was not written by this command") from error


def change_contexts(change: Callable[[Contexts], Contexts]) -> None:
    """Replace the contexts by what `change` makes of the present ones, while other commands wait; raise
    ContextsUnsafe or ContextsUnreadable."""
    with contexts_locked():
        write_contexts(change(read_contexts()))


@contextmanager
def contexts_locked() -> Iterator[None]:
    """Keep other commands from changing the contexts while the block lasts; raise ContextsUnreadable.
    The lock is on a file beside them, because each change replaces the file itself."""
    import fcntl

    from hocket.cli.terminal.errors import ContextsUnreadable

    file = contexts_file()
    until = time.monotonic() + LOCK_WAIT_S
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ContextsUnreadable(file=file, reason=error.strerror) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    reason = f"another command has been changing them for {LOCK_WAIT_S:.0f} s"
                    raise ContextsUnreadable(file=file, reason=reason) from error
                time.sleep(LOCK_INTERVAL_S)
            except OSError as error:
                raise ContextsUnreadable(file=file, reason=error.strerror) from error
        yield
    finally:
        os.close(descriptor)


def write_contexts(contexts: Contexts) -> None:
    """Write the contexts file; raise ContextsUnreadable."""
    from hocket.cli.terminal.errors import ContextsUnreadable
    from hocket.kit.embedded.secret_files import write_private

    file = contexts_file()
    named = {name: asdict(one) for name, one in sorted(contexts.named.items())}
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps({"current": contexts.current, "contexts": named}, indent=2))
    except OSError as error:
        raise ContextsUnreadable(file=file, reason=error.strerror) from error


def _context(told: dict[str, Any]) -> Context:
    names = [one.name for one in fields(Context)]
    found = Context(told["api_url"], **{name: told.get(name) for name in names[1:]})
    if not all(one is None or isinstance(one, str) for one in asdict(found).values()):
        raise TypeError
    return found


def _check_name(name: str) -> None:
    if name == LOCAL or _NAME.fullmatch(name) is None:
        raise _invalid(
            "name",
            "`local` is reserved for the platform on this machine"
            if name == LOCAL
            else "it is not a valid context name",
            "Use letters, digits, `.`, `_` and `-`, at most 64.",
        )


def check_shape(field: str, api_url: str) -> SplitResult:
    """Return the parts of the URL of a REST API; raise InvalidInput, naming the field, for any other."""
    unknown = _invalid(
        field, "it is not the URL of a platform", "Write https://HOST or https://HOST/PATH."
    )
    try:
        parts = urlsplit(api_url)
        known = parts.scheme in ("http", "https") and parts.port != 0 and _is_host(parts)
    except ValueError as error:
        raise unknown from error
    has_more = any(mark in api_url for mark in "?#\\") or parts.username is not None
    if not known or has_more or _URL.fullmatch(api_url) is None:
        raise unknown
    return parts


def _check_url(api_url: str) -> None:
    parts = check_shape("url", api_url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise _invalid(
            "url",
            "with plain http, anyone on the network path could read the key",
            "Use https://; plain http is only for this machine.",
        )


def _is_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if "[" in parts.netloc:  # urlsplit has already checked the brackets
        return ":" in host
    labels = host.removesuffix(".").split(".")
    return len(host) <= MAX_HOST_CHARS and all(_LABEL.fullmatch(label) for label in labels)


def _invalid(name: str, reason: str, cure: str) -> "HocketError":
    from hocket.schemas.errors import InvalidInput

    return InvalidInput(field=name, reason=reason, cure=cure)
