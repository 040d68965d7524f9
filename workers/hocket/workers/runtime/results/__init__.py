"""What an attempt came to, as a message that every later station can carry, on its way to the log."""
