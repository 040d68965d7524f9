"""Which partitions this process owns: leases in a bucket, and what the rule makes of them."""
