"""What tests of traces receive them with."""
