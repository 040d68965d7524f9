"""What templates may call: filters, tests and methods, each paid for before it works."""
