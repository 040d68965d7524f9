"""A receiver for the tests of traces."""
