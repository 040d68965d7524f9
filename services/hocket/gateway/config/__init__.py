"""The routing table in service, and how it is replaced while calls run."""
