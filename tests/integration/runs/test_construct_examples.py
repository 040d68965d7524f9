"""Every shell session of docs/reference/constructs and nodes, and of the tutorials, run as it
stands there on one platform with real NATS and Postgres: its commands by the command line's own
code, its run's end as the page says."""

import asyncio
import json
import runpy
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from support.access.plain_nats import plain_nats
from support.construct_pages import (
    EXAMPLES,
    NODE_PAGES,
    NODES,
    PAGES,
    ROOT,
    TUTORIAL,
    TUTORIALS,
    Session,
    sessions,
)
from support.tools.mcp_server import served

BOUND_S = 30.0
POLL_S = 0.02


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {"PYTHONPATH": f"{EXAMPLES}:{NODES}:{TUTORIAL}"}
    config = folder / "hocket.yaml"
    library = runpy.run_path(str(NODES / "library_tools.py"))["server"]
    serve = partial(SimpleHTTPRequestHandler, directory=str(NODES / "crm"))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), serve) as service,
        served(library) as tools_url,
        price_service(folder) as prices_url,
    ):
        Thread(target=service.serve_forever, daemon=True).start()
        sections = together(EXAMPLES / "hocket.yaml", NODES / "hocket.yaml")
        sections["http_services"]["crm"]["url"] = f"http://127.0.0.1:{service.server_port}"
        sections["mcp_servers"]["library"]["url"] = tools_url
        sections["nats_services"]["prices"]["servers"] = prices_url
        config.write_text(json.dumps(sections))
        async with Platform(folder / "d", env=environment, config=config) as platform:
            yield platform
        service.shutdown()
    shutil.rmtree(folder)


@contextmanager
def price_service(folder: Path) -> Iterator[str]:
    """Serve the example over a NATS server of its own, and yield that server's URL."""
    with plain_nats(folder) as place:
        url = f"nats://{place}"
        serve = runpy.run_path(str(NODES / "price_service.py"))["serve"]
        Thread(target=lambda: asyncio.run(serve(url)), daemon=True).start()
        yield url


def together(first: Path, second: Path) -> dict[str, Any]:
    """Return the configuration of two folders of examples;."""
    one, other = (yaml.safe_load(file.read_text("utf-8")) for file in (first, second))
    modules = [c["node_types"]["python"]["modules"] for c in (one, other)]
    return {
        "models": other["models"] | one["models"],
        "node_types": {"python": {"modules": [*modules[0], *modules[1], "shop"]}},
        "http_services": other["http_services"],
        "mcp_servers": other["mcp_servers"],
        "nats_services": other["nats_services"],
    }


def hocket(platform: Platform, *words: str) -> str:
    """Run a command as the shell would; return what it printed."""
    done = CliRunner().invoke(app, words, env={"HOCKET_DATA_DIR": str(platform.data_dir)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def play(platform: Platform, session: Session) -> str:
    """Run a session's commands, paths from the root of the repository; return its run's id."""
    run_id = ""
    for command in session.commands:
        words = [run_id if word == "RUN" else word for word in command]
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
        if words[0] != "run":
            hocket(platform, *words)
        elif "--no-wait" in words:
            run_id = hocket(platform, *words).strip()
        else:
            run_id = json.loads(hocket(platform, *words, "--json"))["run_id"]
    return run_id


async def ended(api: Api, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            run: dict[str, Any] = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}")
            if run["finished_at"] is not None:
                return run
            await asyncio.sleep(POLL_S)


@pytest.mark.parametrize(
    "session",
    [session for page in (*PAGES, *NODE_PAGES, *TUTORIALS) for session in sessions(page)],
    ids=lambda session: " ".join(session.commands[-1]),
)
async def test_a_page_says_how_its_example_ends(platform: Platform, session: Session) -> None:
    run_id = await asyncio.to_thread(play, platform, session)
    run = await ended(platform.api(), run_id)
    error = run["error"] or {}
    assert (run["status"], error.get("code")) == (session.status, session.code), error
    assert run["output"] == session.output


def test_every_page_runs_its_example() -> None:
    for page in PAGES:
        applied = [
            c[2] for s in sessions(page) for c in s.commands if c[:2] == ("pipeline", "apply")
        ]
        assert f"examples/constructs/{page.stem}.yaml" in applied, page


def test_every_example_belongs_to_a_page() -> None:
    shown = {
        Path(command[2]).name
        for page in PAGES
        for session in sessions(page)
        for command in session.commands
        if command[:2] == ("pipeline", "apply")
    }
    assert {file.name for file in EXAMPLES.glob("*.yaml")} == shown | {"hocket.yaml"}


def test_every_example_of_a_node_is_run_and_shown_as_it_is() -> None:
    for file in NODES.glob("*.yaml"):
        if file.stem != "hocket":
            page = next(page for page in NODE_PAGES if page.stem == file.stem)
            assert f"```yaml\n{file.read_text('utf-8').rstrip()}\n```" in page.read_text("utf-8")
            assert list(sessions(page))
