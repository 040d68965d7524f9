"""`hocket demo`: the whole platform on this machine, with real questions over real data, and their cost.

Starts the embedded servers, loads the demo's tables and texts, starts every process, applies the
pipeline `report`, runs three questions (two that the data answers and one that it does not), shows that
a tampered figure is caught, and stops. The data is kept, so the second time is faster.
"""

import asyncio
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.remote.target import DEFAULT_TENANT, target_of
from hocket.cli.terminal import folders

if TYPE_CHECKING:
    from hocket.cli.local.platform import Platform
    from hocket.cli.remote.api import Api
    from hocket.cli.remote.target import Target

QUESTIONS = (
    "What is the melting point of gold, and what is gold used for?",
    "Which five elements have the highest density?",
    "What is the market price of rhodium per ounce?",
)
COLLECTION = "elements"
VERIFIER = "hocket.workers.nodes.verify:verify_draft"
"""The only function that the demo's pipeline calls."""
RUN_TIMEOUT_S = 30.0
STATEMENT_TIMEOUT_MS = 20_000.0
POOL_SIZE = 4


def demo(
    context: typer.Context,
    question: Annotated[
        list[str] | None, typer.Argument(help="Ask your own questions instead of the demo's three.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=folders.path,
            help="Folder for the demo's data.",
            show_default="demo beside the data",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the platform running until Ctrl-C.")
    ] = False,
    on_platform: Annotated[
        bool,
        typer.Option(
            "--on-platform",
            help="Use the platform named by --api and DATABASE_URL instead of starting one. Its "
            "workers must know the database `demo` and the verifier's function.",
        ),
    ] = False,
) -> None:
    """Answer three questions over real data, on embedded servers, and show what each run did and cost.

    The second time is faster, because servers, data and pipeline are already set up.
    """
    target = target_of(context)
    folder = data_dir or target.data_dir / "demo"
    questions = tuple(question) if question else QUESTIONS
    if on_platform:
        if not _on_platform(target, folder, questions):
            raise typer.Exit(1)
        return
    if not asyncio.run(_demo(folder, questions, keep=keep)):
        raise typer.Exit(1)


async def _demo(folder: Path, questions: tuple[str, ...], *, keep: bool) -> bool:
    from hocket.cli.local.platform import Platform
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.log_lines import show_warnings
    from hocket.kit.embedded import EmbeddedServers
    from hocket.kit.postgres.migrations import migrate

    show_warnings(notes)
    began = time.monotonic()
    notes.print(f"Starting NATS, Postgres and Hocket in {folder} ...", style="dim", markup=False)
    async with EmbeddedServers(folder) as servers:
        await migrate(servers.database_url)
        config = await _load(folder, servers.database_url)
        async with Platform(
            folder,
            nats_url=servers.nats_url,
            database_url=servers.database_url,
            config=config,
            handlers=(VERIFIER,),
            log_level="info",
        ) as platform:
            notes.print(f"Ready after {time.monotonic() - began:.1f} s.", style="dim")
            good = await asyncio.to_thread(_ask_all, platform.api(), questions)
            _print_farewell(platform, folder, keep=keep)
            if keep:
                await _until_interrupted()
    return good


def _on_platform(target: "Target", folder: Path, questions: tuple[str, ...]) -> bool:
    """Ask a running platform, with the reader's password from its configuration file."""
    from urllib.parse import unquote, urlsplit

    from hocket.kit.process.config import load

    config = os.environ.get("HOCKET_CONFIG")
    databases = load(Path(config) if config else None).get("databases") or {}
    url = (databases.get("demo") or {}).get("url", "")
    api = target.api()
    asyncio.run(_load_data(folder, target.database_url, unquote(urlsplit(url).password or "")))
    return _ask_all(api, questions)


async def _load(folder: Path, database_url: str) -> Path:
    """Load the data and write the configuration."""
    from hocket.workers.demo.load import READER

    password = secrets.token_urlsafe(24)
    await _load_data(folder, database_url, password)
    return _write_config(folder, _as_reader(database_url, READER, password))


async def _load_data(folder: Path, database_url: str, password: str) -> None:
    """Load tables and texts concurrently, as they are independent."""
    import asyncpg

    from hocket.workers.demo.load import load_tables, write_texts
    from hocket.workers.retrieval.index import add_folder

    texts = folder / "texts"
    write_texts(texts)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=POOL_SIZE) as pool:

        async def tables() -> None:
            async with pool.acquire() as connection:
                await load_tables(
                    connection, reader_password=password, timeout_ms=STATEMENT_TIMEOUT_MS
                )

        await asyncio.gather(tables(), add_folder(pool, texts, COLLECTION, tenant=DEFAULT_TENANT))


def _as_reader(database_url: str, user: str, password: str) -> str:
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(database_url)
    address = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{address}"))


def _write_config(folder: Path, reader_url: str) -> Path:
    import yaml

    config = folder / "hocket.yaml"
    database = {"url": reader_url, "tables": ["demo_data.*"]}
    descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump({"databases": {"demo": database}}, file)
    return config


def _ask_all(api: "Api", questions: tuple[str, ...]) -> bool:
    from hocket.workers.demo.pipeline import pipeline

    applied = api.post("/v1/pipelines", pipeline())
    for warning in applied["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    ends = [_ask(api, question, number) for number, question in enumerate(questions, 1)]
    caught = _tamper(api, ends[0]) if ends else True
    return caught and all(end["run"]["status"] == "succeeded" for end in ends)


def _ask(api: Any, question: str, number: int) -> dict[str, Any]:
    from hocket.cli.commands.runs.runs import print_run, settled_run
    from hocket.cli.terminal.console import out

    receipt = api.post(
        "/v1/runs",
        {"pipeline": "report", "input": {"question": question}, "wait_ms": RUN_TIMEOUT_S * 1000},
    )
    found = settled_run(api, receipt["run_id"])
    out.print()
    out.rule(f"Question {number}", align="left")
    out.print(question, style="bold", markup=False)
    out.print()
    output = found["run"]["output"] or {}
    out.print(output.get("answer") or "(no answer)", markup=False, highlight=False)
    for citation in output.get("citations") or ():
        out.print(_source(citation), style="dim", markup=False, highlight=False)
    checks = output.get("checks") or {}
    if checks:
        out.print(_verdict(checks), style="green" if checks.get("accepted") else "red")
    out.print()
    print_run(found, output=False)
    return found


def _source(citation: dict[str, Any]) -> str:
    place = citation.get("source") or citation.get("sql") or ""
    if "start" in citation:
        place = f"{place}, characters {citation['start']} to {citation['end']}"
    return f"  [{citation['id']}] {' '.join(str(place).split())[:150]}"


def _verdict(checks: dict[str, Any]) -> str:
    passed = sum(1 for check in checks.get("checks", ()) if check.get("passed"))
    total = len(checks.get("checks", ()))
    word = "accepted" if checks.get("accepted") else "rejected"
    return f"Verifier: {word}, {passed} of {total} checks of figures and citations passed."


def _tamper(api: Any, found: dict[str, Any]) -> bool:
    """Change one digit in the first answer's figures, and let the verifier check it again."""
    from hocket.cli.terminal.console import out
    from hocket.workers.nodes.verify import tampered, verdict_of

    steps = {
        step["step"]: step
        for step in api.get(f"/v1/runs/{found['run']['run_id']}/steps", values=True, limit=500)[
            "steps"
        ]
    }
    verify = steps.get("verify")
    if verify is None or not verify.get("input"):
        return True
    changed = tampered(verify["input"]["draft"])
    if changed is None:
        return True
    verdict = verdict_of({**verify["input"], "draft": changed[0]})
    out.print()
    out.rule("Tampering", align="left")
    out.print(f"The same answer, with {changed[1]} changed to {changed[2]}:", markup=False)
    out.print(_verdict(verdict), style="green" if not verdict["accepted"] else "red")
    for check in verdict["checks"]:
        if not check["passed"]:
            out.print(f"  {check['reason']}", markup=False, highlight=False)
    return not verdict["accepted"]


def _print_farewell(platform: "Platform", folder: Path, *, keep: bool) -> None:
    from hocket.cli.terminal.console import out

    out.print()
    out.rule("Look around", align="left")
    prefix = f"HOCKET_DATA_DIR={folder} "
    lines = [
        ("start it and keep it running", f"hocket demo --data-dir {folder} --keep"),
        ("then, in another shell", f"{prefix}hocket runs list"),
        ("ask something", f'{prefix}hocket run report -i question="..."'),
        ("what it cost", f"{prefix}hocket cost --by node"),
        (
            "REST API",
            f"{platform.api_url}/docs" if keep else "http://127.0.0.1:PORT/docs, while it runs",
        ),
    ]
    for what, how in lines:
        out.print(f"  {what:<28} {how}", markup=False, highlight=False, soft_wrap=True)


async def _until_interrupted() -> None:
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
