"""What the pipelines of a tenant may use."""
