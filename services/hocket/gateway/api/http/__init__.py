"""The door for everybody: OpenAI's API over HTTP. See docs/reference/http-door.md."""
