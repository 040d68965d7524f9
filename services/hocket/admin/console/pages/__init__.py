"""The console's pages, each with the values for its template."""
