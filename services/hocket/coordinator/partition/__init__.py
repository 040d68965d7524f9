"""One partition's loop: its log in, the core's decisions out, and who is told of the ends."""
