"""What templates may call: filters, tests and methods, each charged for before it runs."""
