"""One attempt of a call: its announcement, the request to one or two replicas,
and its usage records."""
