"""How messages of streams are read: in order, by pulling, one by one."""
