"""Flow control by key: whoever decides which waiting runs start, and what it reads and writes."""
