"""What a replica is kept at, when, and what that costs."""
