"""What the tests of a process share instead of making it each anew: imports, a cluster, routes."""
