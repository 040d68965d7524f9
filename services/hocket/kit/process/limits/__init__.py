"""What a process may take of memory, disk and collection time, and how much is left."""
