"""A partition's log: read, handed to the rules, trimmed, and posted to."""
