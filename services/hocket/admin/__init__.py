"""The REST API: submits and reads runs, applies pipelines, reads costs, redrives dead letters.

It reads Postgres, and writes only pipelines there; a run is changed only by a message to its partition's
log. There is one folder per noun: `endpoints` (HTTP), `reads` (SQL), and whatever else the noun needs.
"""
