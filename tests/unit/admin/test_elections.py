"""When groups of servers are asked to elect, and when not."""

import struct
from typing import Any

import pytest

from hocket.admin.nats_access.elections import (
    LOOKED_AT,
    MISSED,
    Servers,
    leaderless,
    vote_request,
)

A, B, C = "id-of-n1", "id-of-n2", "id-of-n3"
NAMES = {A: "n1", B: "n2", C: "n3"}


def answer(name: str, version: str = "2.15.1", process: str = "first") -> dict[str, Any]:
    return {"server": {"name": name, "ver": version, "id": f"{name}-{process}"}}


def after(servers: Servers, *rounds: str) -> Servers:
    """Let rounds pass in which the servers that are named answer."""
    for names in rounds:
        servers.heard([answer(name) for name in names.split()])
    return servers


def member(server: str, **more: Any) -> dict[str, Any]:
    peers = {one: {"name": name} for one, name in NAMES.items()}
    group = {"state": "FOLLOWER", "leader": A, "term": 7, "pindex": 3, "quorum_needed": 2}
    return {
        "server": {"name": server},
        "data": {"HOCKET": {"S-R3F-x": {**group, "peers": peers, **more}}},
    }


def test_a_server_has_gone_that_leaves_questions_in_a_row_unanswered() -> None:
    servers = after(Servers(), "n1 n2 n3", *["n2 n3"] * (MISSED - 1))
    assert (servers.gone, servers.looked_at) == (set(), 0)
    assert after(servers, "n2 n3").gone == {"n1"}
    assert servers.looked_at == LOOKED_AT
    assert after(servers, "n1 n2 n3").gone == set()


def test_groups_are_looked_at_for_a_while_and_not_for_ever() -> None:
    servers = after(Servers(), "n1 n2 n3", *["n2 n3"] * (MISSED + LOOKED_AT))
    assert (servers.gone, servers.looked_at) == ({"n1"}, 0)


def test_groups_are_looked_at_when_a_server_comes_back_as_another_process() -> None:
    servers = after(Servers(), "n1 n2 n3", "n1 n2 n3")
    assert servers.looked_at == 0
    servers.heard([answer("n1", process="second"), answer("n2"), answer("n3")])
    assert (servers.gone, servers.looked_at) == (set(), LOOKED_AT)


def test_a_server_that_answers_now_and_then_is_there() -> None:
    servers = after(Servers(), *["n1 n2 n3", "n2 n3", "n2 n3"] * 20)
    assert (servers.gone, servers.looked_at) == (set(), 0)


def test_whoever_hears_the_smaller_part_is_away_himself() -> None:
    servers = after(Servers(), "n1 n2 n3", *["n3"] * 50, *[""] * 50)
    assert (servers.gone, servers.looked_at) == (set(), 0)


@pytest.mark.parametrize("other", ["2.14.9", "2.16.0", "3.0.0", "2.16.0-RC.1"])
def test_servers_are_unknown_of_which_one_has_another_version(other: str) -> None:
    servers = after(Servers(), "n1 n2 n3")
    assert servers.are_known
    servers.heard([answer("n1"), answer("n2"), answer("n3", other)])
    assert not servers.are_known


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([member("n2"), member("n3", leader="", term=9)], id="its leader has gone"),
        pytest.param(
            [member("n1", leader="", term=9), member("n2"), member("n3")],
            id="its leader is back and leads it no more",
        ),
        pytest.param(
            [{"server": {"name": "n1"}, "data": None}, member("n2"), member("n3", term=9)],
            id="its leader is back and knows nothing of it yet",
        ),
        pytest.param(
            [member("n1", leader="", pindex=0), member("n2"), member("n3", term=9)],
            id="its leader is back with an empty disk",
        ),
    ],
)
def test_a_group_that_nobody_leads_elects(answers: list[dict[str, Any]]) -> None:
    gone = {"n1"} - {one["server"]["name"] for one in answers}
    assert leaderless(answers, gone) == {"S-R3F-x": 9}


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([member("n2", leader="id-of-n4"), member("n3")], id="its leader is unknown"),
        pytest.param([member("n2", state="LEADER", leader=B), member("n3")], id="one leads it"),
        pytest.param([member("n2")], id="too few are left"),
        pytest.param([member("n2", pindex=0), member("n3", pindex=0)], id="an empty log would win"),
        pytest.param([{"server": {"name": "n2"}, "data": {}}], id="there is none"),
    ],
)
def test_a_group_is_left_alone(answers: list[dict[str, Any]]) -> None:
    assert leaderless(answers, {"n1"}) == {}


def test_a_leader_that_is_only_late_with_its_answer_keeps_its_office() -> None:
    assert leaderless([member("n2"), member("n3")], set()) == {}


def test_a_vote_is_asked_for_a_candidate_with_an_empty_log() -> None:
    """As `decodeVoteRequest` of the servers reads it: three numbers of 64 bits, little end first."""
    request = vote_request(8)
    assert struct.unpack("<QQQ8s", request) == (8, 0, 0, request[-8:])
    assert len(request) == 32
