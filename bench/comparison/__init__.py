"""Compare Hocket with other engines on the same pipeline and machine."""
