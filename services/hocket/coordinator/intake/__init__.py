"""Tasks on their way into a partition's log: fetched, checked, and admitted, kept waiting or refused."""
