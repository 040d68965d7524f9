"""Flow control by key: the controller that decides which waiting runs start, and the tables that it
reads and writes."""
