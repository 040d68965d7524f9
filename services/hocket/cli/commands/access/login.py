"""`hocket login`, `hocket logout`: the key that a context shows."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from hocket.cli.remote.api import Api, path
from hocket.cli.remote.contexts import LOCAL, Context, Contexts, read_contexts, write_contexts
from hocket.cli.remote.target import Target, target_of

MAX_KEY_CHARS = 16_384


def login(context: typer.Context) -> None:
    """Sign in to a platform with a key, which is kept for the commands that follow.

    It is asked for, or read from standard input: `hocket login < key.txt`. Only your user can read
    where it is kept.
    """
    from hocket.cli.terminal.console import notes

    name, contexts, known = _chosen(target_of(context))
    key = _asked_key()
    own = Api(known.api_url, key=key).get("/v1/keys/own")
    write_contexts(contexts.put(name, replace(known, key=key)))
    whose = "all tenants" if own["tenant"] is None else f"the tenant {own['tenant']}"
    text = f"Signed in to {known.api_url} as {own['name']}, {own['role']} of {whose}."
    notes.print(text, markup=False)


def logout(
    context: typer.Context,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Let the key count no more, anywhere.")
    ] = False,
) -> None:
    """Forget the key of a platform."""
    from hocket.cli.terminal.console import notes

    name, contexts, known = _chosen(target_of(context))
    if known.key is not None and revoke:
        api = Api(known.api_url, key=known.key)
        api.delete(path("keys", api.get("/v1/keys/own")["key_id"]))
    write_contexts(contexts.put(name, replace(known, key=None)))
    done = "is revoked" if revoke else "is forgotten here; it counts on"
    notes.print(f"The key of {known.api_url} {done}.", markup=False)


def _chosen(target: Target) -> tuple[str, Contexts, Context]:
    """Return the context that was named, or the current one; raise LoginNeedsContext."""
    contexts = read_contexts()
    name = target.named_context or contexts.current
    known = contexts.get(name)
    if known is None:
        from hocket.cli.terminal.errors import LoginNeedsContext

        raise LoginNeedsContext(local=LOCAL)
    return name, contexts, known


def _asked_key() -> str:
    is_typed = sys.stdin.isatty()
    given = typer.prompt("Key", hide_input=True) if is_typed else sys.stdin.read(MAX_KEY_CHARS)
    key = str(given).strip()
    if not key or not key.isascii() or not key.isprintable():
        from hocket.schemas.errors import InvalidInput

        raise InvalidInput(
            field="key",
            reason="what was typed is none" if is_typed else "standard input has none",
            cure="Give one: `hocket login < key.txt`, or run it in a terminal.",
        )
    return key
