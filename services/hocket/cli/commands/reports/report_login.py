"""`hocket report-login`: Postgres logins that can read the reports."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer

from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.kit.postgres.report_logins import ReportLogin, Revoked

T = TypeVar("T")
PASSWORD_BYTES = 24
PASSWORD_ENV = "HOCKET_REPORT_PASSWORD"
OWN_OPTIONS = ("user", "password", "sslcert", "sslkey", "sslpassword")
"""Options of a database URL that say who the login of the URL is."""

app = typer.Typer(
    help="SQL logins that can read reports: create, revoke, list.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="Name of the login: lowercase letters, digits and `_`.")]


@app.command("create")
def create(
    context: typer.Context,
    name: Name,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Tenant whose rows it can read, and no others.")
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Allow it to read the rows of all tenants.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a login that can read reports, of one tenant or of all, and print its password once.

    It can read the views of the schema `report` and nothing else. To choose the password yourself, set
    HOCKET_REPORT_PASSWORD.
    """
    import os
    import secrets

    from hocket.cli.terminal.console import notes, print_json
    from hocket.kit.postgres import report_logins
    from hocket.schemas.subjects import check_token

    if (tenant is None) is not all_tenants:
        raise typer.BadParameter("Use --tenant or --all-tenants.")
    if tenant is not None:
        check_token("--tenant", tenant)
    password = os.environ.get(PASSWORD_ENV) or secrets.token_urlsafe(PASSWORD_BYTES)
    url = target_of(context).database_url
    left = _run(url, lambda connection: report_logins.create(connection, name, tenant, password))
    if as_json:
        told = {"name": name, "tenant": tenant, "url": _url_of(url, name, password)}
        print_json(told | {"left_to_superuser": list(left)})
        return
    if left:
        notes.print(
            "The login can still do what hinders others, such as filling the server's disk or taking"
            " locks that Hocket's processes wait for. To prevent that, a superuser has to run in this"
            " database:"
        )
        for statement in left:
            notes.print(f"{statement};")
    whose = "all tenants" if tenant is None else f"the tenant {tenant}"
    notes.print(f"{name} can read the reports of {whose}. The password is shown only once:")
    typer.echo(_url_of(url, name, password))


@app.command("revoke")
def revoke(
    context: typer.Context,
    name: Name,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove a login and close its connections.

    Ends with 1 if a role of its name stays that can log in.
    """
    from hocket.cli.terminal import exit_codes
    from hocket.cli.terminal.console import print_json
    from hocket.kit.postgres import report_logins

    url = target_of(context).database_url
    left = _run(url, lambda connection: report_logins.revoke(connection, name))
    if as_json:
        told = {"connections_left": left.connections, "role_left": left.role_left or None}
        print_json({"name": name, **told, "can_log_in": left.can_log_in})
    else:
        _print_revoked(name, left)
    if left.can_log_in:
        raise typer.Exit(exit_codes.FAILED)


@app.command("list")
def list_(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the report logins."""
    from hocket.cli.terminal.console import out, print_json, print_table
    from hocket.kit.postgres import report_logins

    found = _run(target_of(context).database_url, report_logins.logins)
    if as_json:
        print_json(
            [
                {
                    "login": one.name,
                    "tenant": one.tenant,
                    "created_at": None if one.created_at is None else one.created_at.isoformat(),
                    "connections": one.connections,
                    "has_role": one.has_role,
                    "can_log_in": one.can_log_in,
                    "has_namesake": one.has_namesake,
                    "is_revoked": one.is_revoked,
                }
                for one in found
            ]
        )
        return
    if not found:
        out.print("There are no report logins. Create one with `hocket report-login create`.")
        return
    rows = [
        (
            one.name,
            _whose(one),
            "-" if one.created_at is None else f"{one.created_at:%Y-%m-%d}",
            str(one.connections),
            _state_of(one),
        )
        for one in found
    ]
    columns = ("LOGIN", "TENANT", "CREATED", "CONNECTIONS", "STATE")
    print_table(columns, rows, numbers=("CONNECTIONS",), texts=("TENANT",))


def _print_revoked(name: str, left: "Revoked") -> None:
    from hocket.cli.terminal.console import notes

    notes.print(f"{name} is revoked.")
    if left.connections:
        notes.print(
            f"{left.connections} of its connections could not be closed; they can no longer read"
            " anything here."
        )
    if left.role_left:
        notes.print(left.role_left)


def _whose(login: "ReportLogin") -> str:
    return "-" if login.is_revoked else login.tenant or "(all)"


def _state_of(login: "ReportLogin") -> str:
    if not login.has_role:
        return "other role" if login.has_namesake else "no role"
    if login.is_revoked:
        return "revoked, role left"
    return "valid" if login.can_log_in else "no login"


def _run(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run `work` with a database connection; raise what `or_unavailable` raises."""
    import asyncio

    from hocket.cli.remote.database import or_unavailable
    from hocket.kit.postgres.database import connected

    async def worked() -> T:
        connection = await connected(url)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(or_unavailable(worked()))


def _url_of(url: str, name: str, password: str) -> str:
    """Return the database URL for another login, with the same options (`?sslmode=`)."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    options = [(key, value) for key, value in parse_qsl(parts.query) if key not in OWN_OPTIONS]
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{name}:{quote(password, safe='')}@{place}{parts.path}{query}"
