"""What a run's graph becomes: scopes, the layers of a node, and steps that hold other steps."""
