"""Queries to SQL databases: one checked SELECT, read-only, bounded in time, rows and bytes.

`guard` decides what may run, `targets` owns the connections, `runner` runs queries and shapes the
answer, `schema` describes databases to planners and models. Nothing here knows about steps or messages.
"""
