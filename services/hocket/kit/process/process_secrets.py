"""How a process gets its secrets: through a pipe that is read once, not through its environment.

Everybody who may inspect a process can read the environment that it was started with
(`/proc/PID/environ`), and every function that runs in it can read `os.environ`. The secrets are the URLs
of NATS and Postgres, the platform's keys, its secret at an identity provider, the variables that the
configuration names as `os.environ/NAME` (keys of models) and, if it is in LiteLLM's format, the default
variables for the keys of its providers.

`hocket up` hands over the secrets of each process in this way. A worker that was started with secrets in
its environment restarts itself without them, before it imports anything else. For that reason, only the
standard library is imported here.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

URLS = (
    "HOCKET_NATS_URL",
    "NATS_URL",
    "HOCKET_DATABASE_URL",
    "DATABASE_URL",
    "HOCKET_NATS_ACCESS_URL",
)
OWN = (
    *URLS,
    "HOCKET_CAPABILITY_KEY",
    "HOCKET_USAGE_KEY",
    "HOCKET_API_KEY",
    "HOCKET_ADMIN_KEY",
    "HOCKET_NATS_ACCESS_SEED",
    "HOCKET_OIDC_CLIENT_SECRET",
)
"""The settings that are secret."""
PIPE = "HOCKET_SECRETS_FD"
"""The variable that names the pipe's descriptor."""
FILE = "_FILE"
"""Suffix of the variables that name the file of a secret: `DATABASE_URL_FILE`."""
MAX_BYTES = 60_000
"""Bytes that a pipe can hold without a reader."""
MAX_CONFIG_BYTES = 4_000_000

PROVIDER_KEYS = frozenset(
    f"{name}_API_KEY"
    for name in (
        "ANTHROPIC AZURE CO COHERE DEEPSEEK FIREWORKS FIREWORKS_AI GEMINI GOOGLE GROQ MISTRAL OPENAI "
        "OPENROUTER OR TOGETHER TOGETHERAI XAI"
    ).split()
)
"""The variables that a gateway reads for models in LiteLLM's format that name no key."""
_LITELLM = b"model_list"
_NAMED = re.compile(rb"os\.environ/([A-Za-z_]\w*)")


def read_files(
    environment: MutableMapping[str, str] = os.environ, names: Iterable[str] = OWN
) -> None:
    """Set each of our secrets for which a file is named (`DATABASE_URL_FILE=/run/secrets/database`) to
    the file's content, without surrounding whitespace. Raises InvalidInput."""
    for name in names:
        path = environment.pop(name + FILE, "")
        if not path:
            continue
        try:
            if environment.get(name):
                raise ValueError(f"{name} is set as well")
            with Path(path).open("rb") as file:
                content = file.read(MAX_BYTES).decode().strip()
            if not content:
                raise ValueError("the file is empty")
        except (OSError, ValueError) as error:
            raise _unreadable(name + FILE, error) from error
        environment[name] = content


def _unreadable(variable: str, error: OSError | ValueError) -> Exception:
    from hocket.schemas.errors import InvalidInput

    reason = getattr(error, "strerror", None) or (
        "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
    )
    cure = (
        "Name a file that this process may read, and set either the variable or its file, not both."
    )
    return InvalidInput(field=variable, reason=reason, cure=cure)


def secret_names(environment: Mapping[str, str]) -> set[str]:
    """Return the variables of an environment that hold secrets."""
    return {*OWN, *_named_in(environment.get("HOCKET_CONFIG"))} & set(environment)


def split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return an environment without its secrets, and the secrets."""
    names = secret_names(environment)
    plain = {name: value for name, value in environment.items() if name not in names}
    return plain, {name: environment[name] for name in names}


def handed_over(secrets: Mapping[str, str]) -> int:
    """Return the descriptor of a pipe that holds the secrets; the caller closes it. Raises
    InvalidInput."""
    content = _packed(secrets)
    if len(content) > MAX_BYTES:
        raise _too_many(secrets)
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
    finally:
        os.close(writing)
    return reading


def _packed(secrets: Mapping[str, str]) -> bytes:
    return json.dumps(dict(secrets)).encode()


def _too_many(secrets: Mapping[str, str]) -> Exception:
    from hocket.schemas.errors import InvalidInput

    largest = max(secrets, key=lambda name: len(secrets[name]))
    return InvalidInput(
        field=largest,
        reason=f"the secrets of this process have {len(_packed(secrets))} bytes, and this one has the "
        f"most; the limit is {MAX_BYTES}",
        cure="Shorten it, or name fewer variables in the configuration.",
    )


def taken() -> dict[str, str]:
    """Return the secrets that were handed to this process; later calls return nothing."""
    descriptor = os.environ.pop(PIPE, None)
    if descriptor is None:
        return {}
    with os.fdopen(int(descriptor), "rb") as pipe:
        secrets: dict[str, str] = json.loads(pipe.read())
    return secrets


def start_without_secrets() -> None:
    """Restart this program if its environment holds secrets; they are then handed over through a
    pipe. Exits with a message if there are too many."""
    plain, secrets = split(os.environ)
    if not secrets or PIPE in os.environ or not sys.orig_argv:
        return
    if len(_packed(secrets)) > MAX_BYTES:
        sys.exit(f"hocket: {_too_many(secrets)}")
    descriptor = handed_over(secrets)
    os.set_inheritable(descriptor, True)
    plain[PIPE] = str(descriptor)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], plain)


def _named_in(config: str | None) -> set[str]:
    with suppress(OSError, RuntimeError):  # it has no home, for `~`
        if config:
            text = Path(config).expanduser().read_bytes()[:MAX_CONFIG_BYTES]
            named = {name.decode() for name in _NAMED.findall(text)}
            return named | PROVIDER_KEYS if _LITELLM in text else named
    return set()
