"""Resources that the tests of a process share, so that they are made only once: imports, a cluster,
routes."""
