"""Flow control by key: which runs wait to start, and what becomes of them. Pure: no clock, no
database."""
