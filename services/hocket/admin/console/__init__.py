"""The console: web pages over the same reads and operations as the API."""
