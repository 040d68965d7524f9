"""Commands about pipelines and what they depend on."""
