"""What a ledger does to old rows: rollups of closed days, partitions made ahead, retention."""
