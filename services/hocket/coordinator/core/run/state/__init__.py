"""What a run is made of, and its form as rows and messages."""
