"""Which steps go to workers now, which tasks begin now, and who owns which partition."""
