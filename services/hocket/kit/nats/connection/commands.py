"""The lines of the NATS protocol that publish a message. Pure."""

from collections.abc import Mapping, Sequence

from hocket.kit.nats.errors import PublishRefused
from hocket.schemas.errors import PayloadTooLarge

MSG_ID = "Nats-Msg-Id"


def publish_command(
    subject: str,
    payload: bytes,
    reply: str,
    headers: Mapping[str, str] | None,
    limit_bytes: int,
    msg_id: str | None = None,
) -> bytes:
    """Return the PUB command of a message (HPUB if it has headers or an id) with its payload. Raises
    PublishRefused or PayloadTooLarge for what the server could not parse or would close the connection
    over."""
    if subject.split() != [subject]:
        raise PublishRefused(subject=subject, reason="that is not a subject")
    count, lines = 0, ""
    if msg_id is not None:
        count, lines = 1, f"{MSG_ID}: {msg_id}\r\n"
    if headers:
        count += len(headers)
        lines += "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not count:
        size = len(payload)
        if size > limit_bytes:
            raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
        return b"%b%b\r\n" % (f"PUB {subject} {reply} {size}\r\n".encode(), payload)
    if lines.count("\n") != count or lines.count("\r") != count:
        raise PublishRefused(subject=subject, reason="a header has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    size = len(head) + len(payload)
    if size > limit_bytes:
        raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
    line = f"HPUB {subject} {reply} {len(head)} {size}\r\n"
    return b"%b%b%b\r\n" % (line.encode(), head, payload)


def ack_commands(ack_subjects: Sequence[str]) -> bytes:
    """Return the PUB commands that acknowledge messages."""
    if " ".join(ack_subjects).split() != list(ack_subjects):
        raise PublishRefused(subject=ack_subjects[0], reason="that is not a subject")
    return "".join([f"PUB {subject} 4\r\n+ACK\r\n" for subject in ack_subjects]).encode()
