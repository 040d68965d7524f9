"""One attempt of a call: its announcement, the request at a replica or two, its records."""
