"""Commands about runs: begun, found, changed, looked into."""
