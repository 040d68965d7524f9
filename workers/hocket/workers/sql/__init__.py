"""Questions to SQL databases: one checked SELECT, read-only, bounded in time, rows and bytes.

`guard` decides what may run, `targets` owns the connections, `runner` runs and shapes the answer,
`schema` tells a planner or a model what there is to ask. Nothing here knows of steps or messages.
"""
