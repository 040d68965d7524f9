#!/usr/bin/env python3
"""Ends with 0 where the process of this container says that it is ready, for container health checks.

Only sockets are imported, so that asking every few seconds costs next to nothing."""

import os
import socket
import sys

ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask a process that listens on all addresses."""

named = os.environ.get("HOCKET_HEALTH_HOST", "")
port = int(os.environ.get("HOCKET_HEALTH_PORT", "9090"))
try:
    with socket.create_connection((ANY.get(named, named), port), timeout=2) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
except OSError as error:
    sys.exit(f"nobody answers on port {port}: {error}")
head, _, body = answer.partition(b"\r\n\r\n")
sys.stdout.write(body.decode(errors="replace"))
sys.exit(0 if b" 200 " in head.partition(b"\r\n")[0] else 1)
