"""The platform as an MCP server: its pipelines are tools. All state is in the platform, so the server
can be restarted, and clients can reconnect, at any time."""
