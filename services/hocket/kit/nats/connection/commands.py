"""The lines of the NATS protocol that publish a message. Pure."""

from collections.abc import Mapping, Sequence

from hocket.kit.nats.errors import PublishRefused
from hocket.schemas.errors import PayloadTooLarge


def publish_command(
    subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None, limit_bytes: int
) -> bytes:
    """Return the PUB line of a message with its payload (HPUB where it has headers). What the server
    could not read, or would close the connection because of, is refused here."""
    if subject.split() != [subject]:
        raise PublishRefused(subject=subject, reason="that is not a subject")
    if not headers:
        size = len(payload)
        if size > limit_bytes:
            raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
        return b"%b%b\r\n" % (f"PUB {subject} {reply} {size}\r\n".encode(), payload)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise PublishRefused(subject=subject, reason="a header has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    size = len(head) + len(payload)
    if size > limit_bytes:
        raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
    return b"%b%b%b\r\n" % (
        f"HPUB {subject} {reply} {len(head)} {size}\r\n".encode(),
        head,
        payload,
    )


def ack_commands(ack_subjects: Sequence[str]) -> bytes:
    """Return the PUB lines that acknowledge messages, each with its payload."""
    if " ".join(ack_subjects).split() != list(ack_subjects):
        raise PublishRefused(subject=ack_subjects[0], reason="that is not a subject")
    return "".join([f"PUB {subject} 4\r\n+ACK\r\n" for subject in ack_subjects]).encode()
