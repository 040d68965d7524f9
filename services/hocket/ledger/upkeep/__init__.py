"""A ledger's upkeep of old rows: rollups of closed days, creation of partitions, retention."""
