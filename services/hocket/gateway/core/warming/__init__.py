"""How warm a replica is kept, when, and what that costs."""
