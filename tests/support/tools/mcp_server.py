"""An MCP server of the official SDK over streamable HTTP, in a thread of the test's process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from mcp.server.mcpserver import MCPServer

STOP_S = 30.0


@contextmanager
def served(tools: MCPServer) -> Iterator[str]:
    """Serve tools inside the block, and yield their URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(tools.streamable_http_app(), log_config=None, ws="none")
        server = uvicorn.Server(config)
        serving = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        serving.join(timeout=STOP_S)
