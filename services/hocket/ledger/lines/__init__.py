"""Log lines of step handlers: receiving and writing them."""
