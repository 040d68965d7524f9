"""Hocket beside other engines, on the same pipeline and machine."""
