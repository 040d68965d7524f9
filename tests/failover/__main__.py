"""`make failover-test`: tasks come in at 20 a second while Postgres' primary is killed and its
synchronous standby promoted, ten times. Each acknowledged task must be one run that succeeded, each
call be booked once, and 10 s after a promotion at the latest new tasks must end and REST answer, by
themselves. With `--pgbouncer` the platform knows one address, a pgbouncer's, which is led to the new
primary when that is promoted."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import structlog
import yaml

from exhaustion.load import SPEC, TENANT, Load, all_ended, ended_since, violations
from failover.pair import Pair
from hocket.cli.local.platform import Platform
from hocket.schemas.errors import HocketError
from support.places import PACKAGES
from support.servers.pgbouncer import MISSING, PROGRAM, Bouncer

RATE = 20.0
BACK_S = 10.0
BOUND_S = 90.0
WARM_S = 3.0
AWAY_S = (0.0, 1.0, 3.0, 8.0)
"""How long nobody is primary, by turns: what watches Postgres takes some seconds to notice."""
KILLED = (None, "coordinator", None, "ledger", None, "gateway", None, "admin", None, "worker")
"""A process of ours that is killed while nobody is primary, by turns."""


async def _rest_answers(platform: Platform) -> None:
    while True:
        try:
            await asyncio.to_thread(platform.api(TENANT).get, "/v1/runs")
        except HocketError:
            await asyncio.sleep(0.1)
        else:
            return


async def _timed(waits: object) -> float:
    began = time.monotonic()
    async with asyncio.timeout(BOUND_S):
        await waits  # type: ignore[misc]
    return time.monotonic() - began


async def _fail_over(
    number: int, platform: Platform, pair: Pair, load: Load, bouncer: Bouncer | None
) -> list[str]:
    await asyncio.sleep(WARM_S)
    away, victim = AWAY_S[number % len(AWAY_S)], KILLED[number % len(KILLED)]
    pair.kill_primary()
    if victim is not None:
        await platform.kill(victim)
    await asyncio.sleep(away)
    began = time.monotonic()
    await pair.promote()
    if bouncer is not None:
        bouncer.follow(pair.url_of_primary)
    promoted = time.monotonic()
    try:
        run, rest = await asyncio.gather(
            _timed(ended_since(platform, load, promoted)), _timed(_rest_answers(platform))
        )
    except TimeoutError:
        return [f"failover {number + 1}: nothing ended or REST was silent for {BOUND_S:g} s"]
    print(
        f"  {number + 1}: no primary for {away + promoted - began:.1f} s"
        f"{f', {victim} killed' if victim else ''}: "
        f"new runs end after {run:.1f} s, REST answers after {rest:.1f} s",
        flush=True,
    )
    await pair.rebuild()
    await platform.wait_ready(timeout_s=BOUND_S)
    late = max(run, rest)
    return [f"failover {number + 1}: back after {late:.1f} s"] if late > BACK_S else []


async def _play(platform: Platform, pair: Pair, times: int, bouncer: Bouncer | None) -> list[str]:
    await asyncio.to_thread(platform.api(TENANT).post, "/v1/pipelines", SPEC)
    load = Load(platform, RATE, prefix="failover")
    await load.open()
    publishing = asyncio.create_task(load.run())
    wrong: list[str] = []
    try:
        async with asyncio.timeout(BOUND_S):
            await ended_since(platform, load, time.monotonic())
        for number in range(times):
            wrong += await _fail_over(number, platform, pair, load, bouncer)
        load.stop()
        try:
            async with asyncio.timeout(BOUND_S):
                await publishing
                await all_ended(platform, load)
        except TimeoutError:
            wrong.append(f"not everything had ended after {BOUND_S:g} s")
        wrong += await violations(platform, load)
    finally:
        publishing.cancel()
        await load.close()
    print(f"{times} failovers, {len(load.accepted)} tasks acknowledged, {len(wrong)} violations")
    return wrong


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make failover-test")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--pgbouncer", action="store_true")
    given = parser.parse_args()
    if given.pgbouncer and PROGRAM is None:
        parser.error(MISSING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="hocket-failover-") as name:
        folder = Path(name)
        (folder / "postgres").mkdir()
        pair = Pair(folder / "postgres")
        config = folder / "hocket.yaml"
        models = {"mute": {"backends": [{"function": "exhaustion.models:answer"}]}}
        config.write_text(yaml.safe_dump({"models": models, "workers": {"ack_wait_s": 2}}))
        bouncer = None
        try:
            await pair.start()
            if given.pgbouncer:
                place = folder / "postgres" / "pgbouncer"
                bouncer = Bouncer(place, pair.url_of_primary, account=pair.account)
                await bouncer.start()
            async with Platform(
                folder / "platform",
                coordinators=2,
                database_url=pair.url if bouncer is None else bouncer.url,
                config=config,
                env={"PYTHONPATH": PACKAGES},
                ready_timeout_s=180,
            ) as platform:
                wrong = await _play(platform, pair, given.times, bouncer)
        finally:
            if bouncer is not None:
                bouncer.stop()
            pair.stop()
    print("\n".join(wrong[:50]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    asyncio.run(main())
