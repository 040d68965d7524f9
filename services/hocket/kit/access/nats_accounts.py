"""Writes the accounts, users and permissions of a NATS server as its configuration.

They are taken from the table in `schemas/access/nats_table.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from hocket.schemas.access.nats_table import (
    ACCESS,
    ACCESS_USER,
    CROSSINGS,
    GUEST_ACCOUNT,
    MAPPED,
    OWNER,
    PLATFORM_ACCOUNT,
    SERVICES,
    SYSTEM_ACCOUNT,
    SYSTEM_USER,
    TOLD,
    Crossing,
    NatsPermissions,
)

AUTH_TIMEOUT_S = 1.5
"""How long a connection with a key waits for the decision. After 2 s the server would ping the client,
which clients take for an answer."""
MAX_GUEST_SUBSCRIPTIONS = 1_000
"""Subscriptions of one guest's connection (the limit is per connection); each takes about a kilobyte of
the server's memory."""
ANSWERS = 1
USERS = (OWNER, *SERVICES, ACCESS_USER)
"""The users that have a password."""


def accounts_text(passwords: Mapping[str, str], issuer: str) -> str:
    """Return the part of a server's configuration that defines who may do what. `passwords` are those
    of USERS, and of SYSTEM_USER if there is to be one; users without a password are left out.
    `issuer` is the public key of the process that decides which keys may connect."""
    platform = [_user(OWNER, passwords[OWNER], None)] if OWNER in passwords else []
    platform += [
        _user(name, passwords[name], may) for name, may in SERVICES.items() if name in passwords
    ]
    system = [_user(ACCESS_USER, passwords[ACCESS_USER], ACCESS)]
    if SYSTEM_USER in passwords:
        system.append(_user(SYSTEM_USER, passwords[SYSTEM_USER], None))
    known = [name for name in (*USERS, SYSTEM_USER) if name in passwords]
    return "".join(
        (
            "accounts {\n",
            f"  {PLATFORM_ACCOUNT} {{\n    jetstream: enabled\n",
            _list("users", platform),
            _list("exports", _exports()),
            "  }\n",
            f"  {GUEST_ACCOUNT} {{\n    limits {{max_subscriptions: {MAX_GUEST_SUBSCRIPTIONS}}}\n",
            _list("imports", _imports()),
            _mappings(),
            "  }\n",
            f"  {SYSTEM_ACCOUNT} {{\n",
            _list("users", system),
            "  }\n",
            "}\n",
            f"system_account: {SYSTEM_ACCOUNT}\n",
            f"authorization {{\n  timeout: {AUTH_TIMEOUT_S}\n  auth_callout {{\n",
            f"    issuer: {issuer}\n    account: {SYSTEM_ACCOUNT}\n",
            f"    auth_users: {json.dumps(known)}\n  }}\n}}\n",
        )
    )


def _mappings() -> str:
    lines = "".join(f"      {json.dumps(a)}: {json.dumps(b)}\n" for a, b in MAPPED.items())
    return f"    mappings: {{\n{lines}    }}\n"


def _exports() -> Iterator[str]:
    for crossing in CROSSINGS:
        kind = ", response_type: stream" if crossing.is_streamed else ""
        yield (
            f"{{service: {json.dumps(crossing.to or crossing.subject)}{kind}, "
            f'threshold: "{crossing.answered_s}s", accounts: [{GUEST_ACCOUNT}]}}'
        )
    for subject in TOLD:
        yield f"{{stream: {json.dumps(subject)}, accounts: [{GUEST_ACCOUNT}]}}"


def _imports() -> Iterator[str]:
    for crossing in CROSSINGS:
        yield f"{{service: {_of_platform(crossing)}{_as(crossing)}}}"
    for subject in TOLD:
        yield f"{{stream: {{account: {PLATFORM_ACCOUNT}, subject: {json.dumps(subject)}}}}}"


def _of_platform(crossing: Crossing) -> str:
    subject = json.dumps(crossing.to or crossing.subject)
    return f"{{account: {PLATFORM_ACCOUNT}, subject: {subject}}}"


def _as(crossing: Crossing) -> str:
    return "" if crossing.to is None else f", to: {json.dumps(crossing.subject)}"


def _user(name: str, password: str, may: NatsPermissions | None) -> str:
    account = f"user: {json.dumps(name)}, password: {json.dumps(password)}"
    if may is None:
        return f"{{{account}}}"
    answers = f', allow_responses: {{max: {ANSWERS}, expires: "{AUTH_TIMEOUT_S}s"}}'
    return (
        f"{{{account}, permissions: {{publish: {json.dumps(list(may.publish))}, "
        f"subscribe: {json.dumps(list(may.subscribe))}"
        f"{answers if name == ACCESS_USER else ''}}}}}"
    )


def _list(name: str, lines: Iterable[str]) -> str:
    content = "".join(f"      {line}\n" for line in lines)
    return f"    {name}: [\n{content}    ]\n"
