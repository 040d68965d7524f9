"""Python imports this where its folder is on PYTHONPATH: what comes from NATS is then not read where it
arrives, but by the reading task of the client, as nats-py does."""

import os
import sys

try:
    from hocket.kit.nats.protocol import Wire

    assert callable(Wire.listen), "there is nothing to leave out"
    Wire.listen = lambda self, reader: None  # type: ignore[method-assign]
except Exception as error:
    print(f"bench.support.without_listen: {error!r}", file=sys.stderr)
    os._exit(3)
