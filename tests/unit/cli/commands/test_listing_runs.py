"""`hocket runs list`: a search of the API covers a part of the runs at a time."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, as_json, scripted_api


def run(number: int) -> dict[str, Any]:
    return {"run_id": f"r{number}"}


PAGES: dict[str | None, tuple[list[dict[str, Any]], str | None]] = {
    None: ([run(9)], "8:r8"),
    "8:r8": ([], "5:r5"),
    "5:r5": ([run(4), run(3)], "2:r2"),
}


def answered(asked: str, _body: Any) -> Answer:
    query = parse_qs(urlsplit(asked.partition(" ")[2]).query)
    runs, more = PAGES[query.get("after", [None])[0]]
    return as_json(200, {"runs": runs[: int(query["limit"][0])], "next": more})


def test_a_search_goes_on_where_a_page_of_it_ended_until_enough_is_found(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(answered) as api:
        done = run_hocket(
            "--api", api.url, "runs", "list", "--contains", "Ada", "--limit", "2", "--json", env=env
        )
    assert json.loads(done.stdout) == [run(9), run(4)], done.stderr
    assert len(api.asked) == 3
