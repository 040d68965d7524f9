"""One partition's loop: its log in, the core's decisions out, and the announcement of ends."""
