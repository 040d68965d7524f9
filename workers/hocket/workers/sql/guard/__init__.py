"""Which SQL a query may be: read, checked part by part, and written anew."""
