"""What a handler has done, kept so that no other attempt of its step does it again."""
