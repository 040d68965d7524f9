"""An MCP server with one tool, using the official SDK: `python examples/nodes/library_tools.py`."""

from mcp.server.mcpserver import MCPServer

BOOKS = {
    "tides": ["The Moon and the Sea", "Harbours", "Twice a Day"],
    "clocks": ["Longitude in a Box"],
}

server = MCPServer("library")


@server.tool()
def find_books(subject: str, at_most: int = 10) -> list[str]:
    """Find books on a subject."""
    return BOOKS.get(subject.lower(), [])[:at_most]


if __name__ == "__main__":
    server.run(transport="streamable-http", port=8001)
