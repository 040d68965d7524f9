"""Which partitions this process owns: leases in a bucket, and the rule applied to them."""
