"""Calls tools of MCP servers for `mcp` nodes, with the official SDK over our own connections."""
