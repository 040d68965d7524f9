"""How long a process has to stop: run as one, with bounds of tenths of a second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = """
import asyncio
from hocket.kit.process import lifecycle

lifecycle.STOP_TIMEOUT_S = 0.1

async def main(service):
    {asks}
    service.stopping.set()
    await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0.05)
    print("ended by itself")

lifecycle.run("coordinator", main)
"""


LEAVING = """
import asyncio, json, os, signal, time, urllib.error, urllib.request
from hocket.kit.process import health_server, lifecycle

health_server.KEPT_S = 0

def readiness(service):
    (fact,) = (service.settings.data_dir / "run").glob("*.json")
    url = json.loads(fact.read_text())["health_url"] + "/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)

async def main(service):
    service.started()
    told = [await asyncio.to_thread(readiness, service)]
    began_s = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)
    await service.leaving.wait()
    told.append(await asyncio.to_thread(readiness, service))
    is_stopping = service.stopping.is_set()
    {asked_again}
    await service.stopping.wait()
    took_s = time.monotonic() - began_s
    told.append(await asyncio.to_thread(readiness, service))
    print("TOLD", json.dumps([told, is_stopping, took_s]))

lifecycle.run("gateway", main, has_door={has_door})
"""
AGAIN = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("delay_s", "has_door", "asked_again", "lasts_s"),
    [
        ("0.6", True, "pass", (0.6, 20)),
        ("60", True, AGAIN, (0, 20)),
        ("60", False, "pass", (0, 20)),
        ("0", True, "pass", (0, 20)),
    ],
)
def test_a_process_is_not_ready_from_the_stop_signal_on_and_its_door_stays_open_for_a_while(
    delay_s: str, has_door: bool, asked_again: str, lasts_s: tuple[float, float], tmp_path: Path
) -> None:
    code = LEAVING.replace("{has_door}", str(has_door)).replace("{asked_again}", asked_again)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"HOCKET_DATA_DIR": str(tmp_path), "HOCKET_DRAIN_DELAY_S": delay_s},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("TOLD "))
    told, is_stopping, took_s = json.loads(line.removeprefix("TOLD "))
    (before, (leaving, why), (stopping, _)) = told
    assert before[0] == 200
    assert "reason" not in before[1]
    assert (leaving, stopping) == (503, 503)
    assert (why["ready"], why["reason"]) == (False, "the process is shutting down")
    assert all(part["ok"] for part in why["components"].values()), "none of them is unwell"
    assert is_stopping is (not has_door or delay_s == "0")
    assert lasts_s[0] <= took_s < lasts_s[1]
    assert done.returncode == 0, done.stderr


FORKING = """
import asyncio, multiprocessing, os, time
from hocket.kit.process import lifecycle

def forked():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(10)
    return child.exitcode

async def main(service):
    code = await asyncio.to_thread(forked)
    await asyncio.sleep(0.05)
    print("TOLD", code, service.leaving.is_set(), flush=True)
    os._exit(0)

lifecycle.run("worker", main)
"""


def test_a_process_goes_on_when_a_child_that_its_handler_forked_is_terminated(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        env={"HOCKET_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "TOLD -15 False" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("asks", "ended"), [("pass", False), ("service.part('a').needs_to_stop(60)", True)]
)
def test_a_process_stops_in_its_own_time_where_it_asked_for_it(
    asks: str, ended: bool, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS.format(asks=asks)],
        env={"HOCKET_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("ended by itself" in done.stdout) is ended, done.stderr
    assert ("service_stop_timed_out" in done.stdout + done.stderr) is not ended
