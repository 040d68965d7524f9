"""Which step goes first: deadlines, overload, races that are cancelled."""
