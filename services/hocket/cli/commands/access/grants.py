"""`hocket grants`: what the pipelines of a tenant may use."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.cli.remote.api import Api

app = typer.Typer(help="What a tenant's pipelines may use.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PATH = "/v1/grants"
ANY = "any"
NONE = "none"
TRIES = 8


@app.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what the tenant's pipelines may use (`hocket --tenant NAME grants show`)."""
    _print(target_of(context).api().get(PATH), as_json=as_json)


@app.command("set")
def replace(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            help="node_types, queues, models, databases, http_services, mcp_servers or nats_services.",
        ),
    ],
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names that may be used, separated by spaces; `any` alone allows all, `none` alone "
            "allows nothing."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Replace the list of one kind. Requires an all-tenants key with `grants.manage`.

    Takes effect within seconds, also for versions applied earlier: their steps fail with
    `grant_missing` if they use something that was withdrawn.
    """
    replace_list(target_of(context).api(), kind, _list_of(names), as_json=as_json)


@app.command("clear")
def clear(context: typer.Context, as_json: AsJson = False) -> None:
    """Allow the tenant's pipelines to use everything again."""
    _print(target_of(context).api().put(PATH, {}), as_json=as_json)


def replace_list(api: "Api", kind: str, names: list[str] | None, *, as_json: bool) -> None:
    """Replace one list and leave the others as they are."""
    from hocket.cli.terminal.errors import ApiRefused
    from hocket.schemas.access.grants import KINDS
    from hocket.schemas.errors import InvalidInput

    if kind not in KINDS:
        raise InvalidInput(
            field="KIND",
            reason=f"`{kind}` is not a kind of grant",
            cure=f"Use one of {', '.join(KINDS)}.",
        )
    for tries_left in reversed(range(TRIES)):
        before, tag = api.get_tagged(PATH)
        try:
            changed = api.put(PATH, {**before, kind: names}, if_match=tag)
        except ApiRefused as refused:  # another list was changed meanwhile
            if refused.info().code != "precondition_failed" or not tries_left:
                raise
        else:
            _print(changed, as_json=as_json)
            return


def _list_of(names: list[str]) -> list[str] | None:
    """Return the list that the names stand for, None for everything; raise InvalidInput for a name that
    would lock the tenant out."""
    from hocket.cli.terminal.sources import checked_text
    from hocket.schemas.access.grants import GrantName
    from hocket.schemas.checks.plain_json import shown_text
    from hocket.schemas.errors import InvalidInput

    if len(names) == 1 and (word := names[0].lower()) in (ANY, NONE):
        return None if word == ANY else []
    for name in names:
        if (word := name.lower()) in (ANY, NONE):
            cure = f"Give `{word}` alone, or only names."
            raise InvalidInput(field="NAMES", reason=f"`{name}` stands beside names", cure=cure)
        if "," in name:
            parts = shown_text(" ".join(part for part in name.split(",") if part))
            raise InvalidInput(
                field="NAMES",
                reason=f"`{shown_text(name)}` has a comma",
                cure=f"Separate names by spaces: `{parts}`.",
            )
        checked_text(GrantName, name, "NAMES")
    return names


def _print(grants: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.terminal.console import print_json, print_table

    if as_json:
        print_json(grants)
        return
    rows = [
        (kind, ANY if names is None else (", ".join(names) or NONE))
        for kind, names in grants.items()
    ]
    print_table(("KIND", "MAY USE"), rows, texts=("MAY USE",))
