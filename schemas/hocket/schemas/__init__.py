"""The contract between Hocket's processes and with its users: data only; no IO, clock or randomness."""
