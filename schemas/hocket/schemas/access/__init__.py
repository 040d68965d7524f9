"""Who may do what: permissions and roles, the form of keys, and what a key says of its bearer."""
