"""What a run is made of, and how it stands in rows and messages."""
