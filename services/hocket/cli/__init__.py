"""The `hocket` command: starts a platform on one machine, and talks to a running one.

Commands import what they need when they run, so that `hocket --help` answers at once.
"""
