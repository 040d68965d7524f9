"""Messages between our own processes as structs: a faster way to read what the contract defines."""
