"""A process ends in time, whatever takes its spans."""

import socket
import subprocess
import sys

PROGRAM = """
import sys, time
from hocket.kit.logs import telemetry
from hocket.kit.process import settings
made = telemetry.setup("test", settings.read())
telemetry.EXPORT_TIMEOUT_S = 0.2
for _ in range(2_000):
    made.tracer.start_span("s").end()
began_s = time.monotonic()
made.flush()
print(time.monotonic() - began_s < 5)
"""


def test_spans_that_nobody_takes_keep_no_process_from_its_end() -> None:
    """... nor do those of a server that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"HOCKET_OTLP_ENDPOINT": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert ended.stdout.splitlines()[-1] == "True", ended.stderr
