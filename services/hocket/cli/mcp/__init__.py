"""The platform as an MCP server: its pipelines are tools. All that lasts is the platform's, so that the
server may be restarted, and its clients may come back, at any time."""
