"""`hocket audit verify` checks the log in parts, and its exit code says whether it could."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from hocket.cli.commands.access.audit import PART
from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, as_json, scripted_api

HASHES = {number: f"{number:064x}" for number in range(5)}


def verdict(rows: int, more: int | None, **other: Any) -> Answer:
    found = {"status": "whole", "rows": rows, "head": HASHES[rows], "next": more, **other}
    return as_json(200, found)


def query_of(asked: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(asked.partition(" ")[2]).query))


def verify(tmp_path: Path, url: str, *options: str) -> Any:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    return run_hocket("--api", url, "audit", "verify", *options, env=env)


@pytest.mark.parametrize(
    ("options", "first", "kept", "said"),
    [
        ((), {}, {}, "intact: 4 rows"),
        (("--head", "f" * 64), {}, {"head": "f" * 64}, "intact: 4 rows"),
        (
            ("--after", "1", "--head", HASHES[1]),
            {"from_row": "1", "from_hash": HASHES[1]},
            {},
            "intact: rows 1 to 4",
        ),
    ],
    ids=("all", "all with a hash", "after a row"),
)
def test_the_log_is_checked_in_parts_each_from_the_end_of_the_one_before(
    tmp_path: Path,
    options: tuple[str, ...],
    first: dict[str, str],
    kept: dict[str, str],
    said: str,
) -> None:
    def answered(asked: str, _body: Any) -> Answer:
        done = int(query_of(asked).get("from_row", 0))
        return verdict(2, 2) if done < 2 else verdict(4, None)

    with scripted_api(answered) as api:
        done = verify(tmp_path, api.url, *options)
    assert (done.returncode, done.stdout) == (0, f"{said}, the last has the hash {HASHES[4]}\n")
    limit = {"limit": str(PART)}
    second = {"from_row": "2", "from_hash": HASHES[2]}
    assert [query_of(asked) for asked, _ in api.asked] == [
        first | kept | limit,
        second | kept | limit,
    ]


def test_a_broken_log_and_one_that_could_not_be_checked_have_other_codes(tmp_path: Path) -> None:
    def broken(_asked: str, _body: Any) -> Answer:
        return verdict(2, None, status="broken", broken_at=3, reason="row 3 is missing")

    with scripted_api(broken) as api:
        found = verify(tmp_path, api.url)
    assert (found.returncode, found.stderr) == (1, "broken at row 3: row 3 is missing\n")

    def failing(asked: str, _body: Any) -> Answer:
        return (502, b"") if "from_row" in asked else verdict(2, 2)

    with scripted_api(failing) as api:
        failed = verify(tmp_path, api.url)
    assert failed.returncode == 3
    assert f"after row 2, whose hash is {HASHES[2]}" in failed.stderr
    assert verify(tmp_path, api.url).returncode == 3, "nobody listens there any more"

    with scripted_api(lambda *_: as_json(200, {"next": 4})) as api:
        odd = verify(tmp_path, api.url)
    assert odd.returncode == 3


def test_a_row_to_go_on_from_is_not_taken_without_its_hash(tmp_path: Path) -> None:
    with scripted_api(lambda *_: verdict(4, None)) as api:
        refused = verify(tmp_path, api.url, "--after", "2")
    assert (refused.returncode, api.asked) == (2, [])
    assert "--head" in refused.stderr


def without_parts(asked: str, _body: Any) -> Answer:
    """Answer as releases do that know only `head`."""
    unknown = next((name for name in query_of(asked) if name != "head"), None)
    if unknown is None:
        found = {"status": "whole", "rows": 4, "head": HASHES[4]}
        return as_json(200, found)
    error = {"code": "invalid_input", "message": "there is no such parameter", "field": unknown}
    return as_json(422, {"error": {**error, "error_class": "invalid"}})


@pytest.mark.parametrize("options", [(), ("--head", HASHES[3])], ids=("all", "all with a hash"))
def test_a_server_that_knows_no_parts_checks_the_whole_log(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with scripted_api(without_parts) as api:
        done = verify(tmp_path, api.url, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"intact: 4 rows, the last has the hash {HASHES[4]}\n"
    head = {"head": HASHES[3]} if options else {}
    assert [query_of(asked) for asked, _ in api.asked] == [head | {"limit": str(PART)}, head]


def test_a_server_that_knows_no_parts_does_not_check_the_rows_after_one(tmp_path: Path) -> None:
    with scripted_api(without_parts) as api:
        failed = verify(tmp_path, api.url, "--after", "2", "--head", HASHES[2])
    assert (failed.returncode, failed.stdout, len(api.asked)) == (3, "", 1)
    assert f"after row 2, whose hash is {HASHES[2]}: the server is of an earlier" in failed.stderr
    assert "Leave out --after" in failed.stderr
    assert failed.stderr.count("could not be checked") == 1


def test_another_refusal_is_shown_as_it_is(tmp_path: Path) -> None:
    def refused(_asked: str, _body: Any) -> Answer:
        error = {"code": "invalid_input", "message": "no hash", "field": "head"}
        return as_json(422, {"error": {**error, "error_class": "invalid"}})

    with scripted_api(refused) as api:
        failed = verify(tmp_path, api.url, "--head", "x")
    assert (failed.returncode, len(api.asked)) == (2, 1)
    assert "no hash" in failed.stderr
