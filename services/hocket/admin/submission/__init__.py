"""Tasks on their way to the broker: one, or many with one request, and what makes both quick."""
