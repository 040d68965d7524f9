"""The door for everybody: OpenAI's API over HTTP. See docs/http-door.md."""
