"""Gateways under test, the model servers that they call, and calls with a stopped clock."""
