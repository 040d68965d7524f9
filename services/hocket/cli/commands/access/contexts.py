"""`hocket context`: the platforms that the command line can talk to."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.contexts import LOCAL, Context, Contexts, change_contexts, read_contexts

app = typer.Typer(help="Platforms that you talk to: add, list, use, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of a context.")]


@app.command("add")
def add(
    name: Name,
    url: Annotated[str, typer.Argument(help="URL of its REST API: https://HOST.")],
    tenant: Annotated[
        str | None, typer.Option(help="Tenant to act for, when using an all-tenants key.")
    ] = None,
) -> None:
    """Add a platform under a name. Sign in with `hocket --context NAME login`."""
    from hocket.cli.terminal.console import notes
    from hocket.schemas.subjects import check_token

    if tenant is not None:
        check_token("--tenant", tenant)

    def added(contexts: Contexts) -> Contexts:
        if name in contexts.named:
            from hocket.cli.terminal.errors import ContextTaken

            raise ContextTaken(name=name)
        return contexts.put(name, Context(url.rstrip("/"), tenant))

    change_contexts(added)
    notes.print(f"Sign in with: hocket --context {name} login", markup=False)


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the platforms; `*` marks the current one. Keys are not shown."""
    from hocket.cli.terminal.console import print_json, print_table

    contexts = read_contexts()
    found: list[dict[str, Any]] = [{"name": LOCAL, "current": contexts.current == LOCAL, "api_url": None,
              "tenant": None, "signed_in": None}]  # fmt: skip
    for name, one in sorted(contexts.named.items()):
        found.append(
            {
                "name": name,
                "current": contexts.current == name,
                "api_url": one.api_url,
                "tenant": one.tenant,
                "signed_in": one.key is not None,
            }
        )
    if as_json:
        print_json(found)
        return
    rows = [
        (
            "*" if one["current"] else "",
            one["name"],
            one["api_url"] or "(this machine)",
            one["tenant"] or "",
            {True: "yes", False: "no", None: "-"}[one["signed_in"]],
        )
        for one in found
    ]
    columns = ("", "name", "address", "tenant", "signed in")
    print_table(columns, rows, texts=("address", "tenant"))


@app.command("use")
def use(name: Name) -> None:
    """Make a platform the current one; `local` is the one on this machine."""
    from dataclasses import replace

    def using(contexts: Contexts) -> Contexts:
        contexts.get(name)
        return replace(contexts, current=name)

    change_contexts(using)


@app.command("remove")
def remove(name: Name) -> None:
    """Remove a platform and its stored key. The key stays valid; `hocket logout --revoke` revokes it."""
    change_contexts(lambda contexts: contexts.without(name))
