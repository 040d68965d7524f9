"""What a migration needs besides its SQL: locks for a short time, and indexes built beside writers."""
