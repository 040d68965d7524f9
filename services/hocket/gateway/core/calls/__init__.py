"""Rules of one call: what it sends, how often it is tried, what it leaves behind."""
