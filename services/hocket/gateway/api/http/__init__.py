"""The door for every client: OpenAI's API over HTTP. See docs/reference/http-door.md."""
