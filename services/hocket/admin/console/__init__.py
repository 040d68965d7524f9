"""The console: pages for people over the same reads and operations as the API."""
