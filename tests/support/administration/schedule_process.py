"""A process that submits the tasks of schedules by an accelerated clock, so that tests can kill it.

`python -m support.administration.schedule_process NATS_URL DATABASE_URL BEGIN SPEED`. Its clock shows
BEGIN at the Unix time BEGIN_S (a variable of the environment), and runs SPEED times as fast as real
time."""

import asyncio
import os
import sys
import time
from datetime import datetime, timedelta

from hocket.admin.context import Context
from hocket.admin.schedules import firing
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from support.shared.clocks import database_clock


async def main(nats_url: str, database_url: str, begin: str, speed: str) -> None:
    began_s, first = float(os.environ["BEGIN_S"]), datetime.fromisoformat(begin)

    def now() -> datetime:
        return first + timedelta(seconds=(time.time() - began_s) * float(speed))

    context = Context(
        bus=await Bus.connect(nats_url, name="schedules"),
        pool=await connect_pool(database_url, size=4, name="schedules"),
        partitions=4,
        max_task_bytes=4_096,
        stopping=asyncio.Event(),
        now=now,
        database_now=database_clock(now),
    )
    firing.LOOK_S = 0.05
    print("ready", flush=True)
    await firing.run(context)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
