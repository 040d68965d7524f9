"""Which steps go to workers now, which tasks are begun now, and who owns which partition."""
