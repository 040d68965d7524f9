"""The REST API: submits and reads runs, applies pipelines, reads costs, redrives dead letters.

Reads Postgres and writes only pipelines there; a run is changed only by a message to the log of its
partition. One folder per noun: `endpoints` (HTTP), `reads` (SQL), and what else the noun needs.
"""
