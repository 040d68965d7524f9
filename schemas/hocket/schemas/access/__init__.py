"""Access control: permissions and roles, the form of keys, and what a key tells about its bearer."""
