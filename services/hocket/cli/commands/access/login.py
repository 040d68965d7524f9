"""`hocket login`, `hocket logout`: the key, or the identity provider's token, that a context uses."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.remote.api import Api, path
from hocket.cli.remote.contexts import LOCAL, Context, change_contexts
from hocket.cli.remote.target import Target, checked_key, target_of

if TYPE_CHECKING:
    from hocket.cli.remote.identity_provider import ProviderClient

MAX_KEY_CHARS = 16_384


def login(
    context: typer.Context,
    sso: Annotated[
        bool,
        typer.Option("--sso", help="Sign in in a browser, at the platform's identity provider."),
    ] = False,
    device: Annotated[
        bool,
        typer.Option(
            "--device",
            help="Sign in there on another device, with a code: for a machine without a browser.",
        ),
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the sign-in URL.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Local port for the browser's redirect; 0 picks any free port."
        ),
    ] = 0,
) -> None:
    """Sign in to a platform with a key or, with `--sso` or `--device`, at its identity provider.

    The key is prompted for, or read from standard input: `hocket login < key.txt`. It is stored where
    only your user can read it. An identity provider's token is renewed automatically if the provider
    allows it.
    """
    from hocket.cli.terminal.console import notes

    name, known = _chosen(target_of(context))
    if device:
        known = _signed_in_elsewhere(known)
    elif sso:
        known = _signed_in(known, port, no_browser=no_browser)
    else:
        known = known.shown(_asked_key())
    tenant = known.tenant if sso or device else None
    own = Api(known.api_url, tenant, known.key).get("/v1/keys/own")
    change_contexts(lambda contexts: contexts.put(name, known))
    whose = "all tenants" if own["tenant"] is None else f"the tenant {own['tenant']}"
    text = f"Signed in to {known.api_url} as {own['name']}, {own['role']} of {whose}."
    notes.print(text, markup=False)


def logout(
    context: typer.Context,
    revoke: Annotated[
        bool,
        typer.Option(
            "--revoke", help="Also revoke the key, so that it is no longer valid anywhere."
        ),
    ] = False,
) -> None:
    """Remove the stored key of a platform."""
    from hocket.cli.terminal.console import notes

    name, known = _chosen(target_of(context))
    if known.issuer is not None:
        change_contexts(lambda contexts: contexts.put(name, known.shown(None)))
        text = (
            f"The token of {known.issuer} was removed from this machine; to end it everywhere, "
            "sign out there."
        )
        notes.print(text, markup=False)
        return
    if known.key is not None and revoke:
        api = Api(known.api_url, key=known.key)
        api.delete(path("keys", api.get("/v1/keys/own")["key_id"]))
    change_contexts(lambda contexts: contexts.put(name, known.shown(None)))
    done = "is revoked" if revoke else "was removed from this machine; it is still valid"
    notes.print(f"The key of {known.api_url} {done}.", markup=False)


def _chosen(target: Target) -> tuple[str, Context]:
    """Return the context that commands use, and its name; raise LoginNeedsContext if they use an
    address, a data folder, or the platform on this machine: a key is stored only with a context."""
    name, known = target.chosen_context
    if known is None:
        from hocket.cli.terminal.errors import LoginNeedsContext

        raise LoginNeedsContext(used=_used(target))
    return name, known


def _used(target: Target) -> str:
    if target.named_api is not None:
        return f"the address {target.named_api}"
    if target.named_context is None and target.is_folder_named:
        return f"the data folder {target.data_dir}"
    return f"`{LOCAL}`, the platform on this machine, whose key is found automatically"


def _signed_in(known: Context, port: int, *, no_browser: bool) -> Context:
    """Return a context with the token of a user who signed in at the platform's provider."""
    import webbrowser

    from hocket.cli.remote.kept_token import with_tokens
    from hocket.cli.remote.provider_sign_in import sign_in
    from hocket.cli.terminal.console import notes

    client = _client(known)

    def show(address: str) -> None:
        typer.echo(address)
        if not no_browser and not webbrowser.open(address):
            notes.print("No browser could be opened: open the URL yourself.", markup=False)

    return with_tokens(known, client, sign_in(client, port, show))


def _signed_in_elsewhere(known: Context) -> Context:
    """Return a context with the token of a user who signed in there on another device."""
    from hocket.cli.remote.device_sign_in import DeviceCode, sign_in_elsewhere
    from hocket.cli.remote.kept_token import with_tokens
    from hocket.cli.terminal.console import notes

    client = _client(known)

    def show(code: DeviceCode) -> None:
        typer.echo(f"Open {code.address} on any device and enter the code {code.code}")
        if code.whole_address is not None:
            typer.echo(f"or open {code.whole_address}")
        minutes = round(code.lasts_s / 60)
        notes.print(f"Waiting for you to sign in there. The code is valid for {minutes} min.")

    return with_tokens(known, client, sign_in_elsewhere(client, show))


def _client(known: Context) -> "ProviderClient":
    """Return the command line's registration at the platform's provider."""
    from hocket.cli.remote.identity_provider import ProviderClient

    told = Api(known.api_url).get("/sign-in")
    return ProviderClient(str(told["issuer"]), str(told["client_id"]))


def _asked_key() -> str:
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    key = (str(typer.prompt("Key", hide_input=True)) if is_typed else _read_key()).strip()
    if not key:
        from hocket.schemas.errors import InvalidInput

        raise InvalidInput(
            field="key",
            reason="nothing was typed" if is_typed else "standard input is empty",
            cure="Provide one: `hocket login < key.txt`, or run it in a terminal.",
        )
    return checked_key("key", key)


def _read_key() -> str:
    """Return what standard input holds; a character that is no text is one that no key has."""
    try:
        return sys.stdin.read(MAX_KEY_CHARS) if sys.stdin is not None else ""
    except UnicodeDecodeError:
        return checked_key("key", "\ufffd")
