"""A partition's log: reading it, applying its events, trimming it, and posting to it."""
