"""The MCP servers whose tools `mcp` nodes call, by the official SDK, over connections of our own."""
