"""Commands about pipelines, and what they rest on."""
