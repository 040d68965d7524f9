"""The console's pages, each with what it sends to its template."""
