"""`hocket conformance worker`: plays the platform against a worker process in any language."""
