"""`hocket keys`: keys for the REST API and the gateway's HTTP door."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.remote.api import path
from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from datetime import datetime

app = typer.Typer(
    help="Keys for the REST API and the gateway's HTTP door: create, list, rotate, revoke.",
    no_args_is_help=True,
)

PAGE = 500

KeyId = Annotated[str, typer.Argument(help="ID of the key, as shown by `hocket keys list`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Apply to all tenants.")]


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Human-readable name of the key: what it is for.")],
    role: Annotated[str, typer.Option(help="Role of the key; see `hocket keys roles`.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Limit the key to this permission of the role; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Limit the key to this model; may be repeated.")
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            help="For worker keys: node type whose steps it may take (`type@queue` for a queue); may "
            "be repeated."
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            min=0, max=36_500, help="Lifetime in days; without it, the key does not expire."
        ),
    ] = None,
    requests_per_s: Annotated[
        float | None,
        typer.Option(min=0, max=1e6, help="Maximum requests per second, counted in each process."),
    ] = None,
    all_tenants: AllTenants = False,
    in_database: Annotated[
        bool,
        typer.Option(
            "--in-database",
            help="Write directly to the database (DATABASE_URL), without a key: for creating the "
            "first one.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once.

    The key belongs to the tenant given by `hocket --tenant` and has the permissions of its role.
    """
    from hocket.cli.terminal.console import notes, print_json

    target = target_of(context)
    expires_at = None if days is None else _in_days(days)
    body: dict[str, Any] = {
        "name": name,
        "role": role,
        "scopes": scope or None,
        "models": model or None,
        "pools": pool or None,
        "all_tenants": all_tenants,
        "requests_per_s": requests_per_s,
        "expires_at": expires_at and expires_at.isoformat(),
    }
    if in_database:
        made = _made_in(target.database_url, body, target.tenant)
    else:
        made = target.api().post("/v1/keys", body)
    if as_json:
        print_json(made)
        return
    whose = "all tenants" if made["tenant"] is None else f"the tenant {made['tenant']}"
    notes.print(f"{name} is {made['role']} of {whose}. The key is shown only now:", markup=False)
    typer.echo(made["key"])


@app.command("list")
def list_(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Include revoked and expired keys.")] = False,
    all_tenants: AllTenants = False,
    as_json: AsJson = False,
) -> None:
    """List keys, newest first, with the time each was last used."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    api, found, after = target_of(context).api(), [], None
    while True:
        asked = {"all": every or None, "all_tenants": all_tenants or None}
        page = api.get("/v1/keys", after=after, limit=PAGE, **asked)
        found += page["keys"]
        if (after := page["next"]) is None:
            break
    if as_json:
        print_json(found)
        return
    if not found:
        out.print(_no_keys(every=every, all_tenants=all_tenants))
        return
    rows = [
        (
            key["key_id"],
            key["name"],
            *_tenant_and_role(key),
            local(key["created_at"]),
            local(key["last_used_at"]) if key["last_used_at"] else "never",
            _state(key),
        )
        for key in found
    ]
    columns = ("ID", "NAME", "TENANT", "ROLE", "CREATED", "LAST USED", "STATE")
    print_table(columns, rows, texts=("NAME", "TENANT"))


@app.command("own")
def own(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the key in use and what it may do."""
    from hocket.cli.terminal.console import out, print_json

    found = target_of(context).api().get("/v1/keys/own")
    if as_json:
        print_json(found)
        return
    out.print(f"key          {found['key_id']} ({found['name']})", markup=False)
    out.print(f"tenant       {found['tenant'] or '(all)'}", markup=False)
    out.print(f"role         {found['role']}", markup=False)
    out.print(f"permissions  {', '.join(found['permissions'])}", markup=False)


@app.command("rotate")
def rotate(
    context: typer.Context,
    key_id: KeyId,
    overlap_s: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds for which the former secret stays valid alongside the new one, fewer than "
            "until the next rotation; 0 ends all former ones.",
        ),
    ] = 86_400.0,
    as_json: AsJson = False,
) -> None:
    """Issue a new secret for a key and print it once. The key keeps its ID and everything tied to it."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import notes, print_json

    place = path("keys", key_id, "rotate")
    made = target_of(context).api().post(place, {"overlap_s": overlap_s})
    if as_json:
        print_json(made)
        return
    until = local(made["former_until"]) if made["former_until"] else "now"
    notes.print(f"The former secret is valid until {until}. The new key:")
    typer.echo(made["key"])


@app.command("revoke")
def revoke(context: typer.Context, key_id: KeyId, as_json: AsJson = False) -> None:
    """Permanently revoke a key: within seconds it is refused everywhere and what it has open ends."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().delete(path("keys", key_id))
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['key_id']} ({found['name']}) is revoked")


@app.command("roles")
def roles(as_json: AsJson = False) -> None:
    """List the roles and their permissions."""
    from hocket.cli.terminal.console import out, print_json
    from hocket.schemas.access.roles import ROLES

    if as_json:
        print_json({role: sorted(allowed) for role, allowed in ROLES.items()})
        return
    for role, allowed in ROLES.items():
        out.print(role, style="bold")
        out.print(f"  {', '.join(sorted(allowed))}", markup=False)


def _no_keys(*, every: bool, all_tenants: bool) -> str:
    """Return what to say if no key is listed: others may exist, such as the one in use."""
    kind = "keys" if every else "valid keys"
    if all_tenants:
        return f"There are no {kind}. Create one with `hocket keys create`."
    return (
        f"This tenant has no {kind}; with --all-tenants, an all-tenants key lists all. Create one "
        "with `hocket keys create`."
    )


def _in_days(days: float) -> "datetime":
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(days=days)


def _state(key: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    from hocket.cli.drawing.amounts import local

    now = datetime.now(UTC)
    if key["revoked_at"]:
        return "revoked"
    if key["expires_at"] and datetime.fromisoformat(key["expires_at"]) <= now:
        return "expired"
    ends = f"until {local(key['expires_at'])}" if key["expires_at"] else ""
    if not key["former_until"] or (former := datetime.fromisoformat(key["former_until"])) <= now:
        return f"valid {ends}" if ends else "valid"
    if not ends:
        return f"two secrets until {local(key['former_until'])}"
    if former >= datetime.fromisoformat(key["expires_at"]):
        return f"two secrets {ends}"
    return f"two secrets until {local(key['former_until'])}, one {ends}"


def _made_in(database_url: str, body: dict[str, Any], tenant: str) -> dict[str, Any]:
    """Create a key directly in the database, as the API would."""
    import asyncio

    from pydantic import ValidationError

    from hocket.cli.remote.database import local_actor, or_unavailable
    from hocket.kit.access import key_store
    from hocket.kit.postgres.database import connected
    from hocket.schemas.access.bodies import KeyBody, KeyMade
    from hocket.schemas.checks.faults import faults_of, refusal
    from hocket.schemas.errors import InvalidInput

    try:
        asked = KeyBody.model_validate(body)
    except ValidationError as error:
        faults = faults_of(error, field_of=lambda place: ".".join(map(str, place)))
        raise refusal(InvalidInput, faults) from None
    wanted = key_store.NewKey(
        name=asked.name,
        role=asked.role,
        tenant=None if asked.all_tenants else tenant,
        scopes=None if asked.scopes is None else frozenset(asked.scopes),
        models=asked.models,
        pools=asked.pools,
        requests_per_s=asked.requests_per_s,
        expires_at=asked.expires_at,
    )

    async def made() -> dict[str, Any]:
        connection = await connected(database_url)
        try:
            row, key = await key_store.create(connection, wanted, local_actor())
        finally:
            await connection.close()
        return KeyMade(**dict(row), key=key).model_dump(mode="json")

    return asyncio.run(or_unavailable(made()))


def _tenant_and_role(key: dict[str, Any]) -> tuple[str, str]:
    """Return the tenant and role columns for a key; a person's are determined by groups."""
    if key.get("groups") is not None:
        return "", f"by groups: {', '.join(key['groups']) or 'none'}"
    in_part = "" if key["scopes"] is None else " (partial)"
    return key["tenant"] or "(all)", key["role"] + in_part
