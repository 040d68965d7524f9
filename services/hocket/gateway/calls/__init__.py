"""A call's life, from the door to its answer: registry, attempts, hedges, cancellation."""
