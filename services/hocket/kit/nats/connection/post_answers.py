"""What a stream answers to a post."""

from typing import Any

import msgspec


class PubAck(msgspec.Struct):
    """Where a stream keeps a message. `duplicate` means that it already had the message id; if the post
    was `repeated`, possibly from an earlier try of the same post."""

    stream: str
    seq: int
    duplicate: bool = False
    repeated: bool = False


class PostAnswer(msgspec.Struct):
    """Where a stream keeps a message, or the error of JetStream's API for why it does not."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: dict[str, Any] | None = None


read_post_answer = msgspec.json.Decoder(PostAnswer).decode
