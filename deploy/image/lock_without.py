"""Copies a lock file from standard input without the packages that a file names, one on a line.

A name that the lock does not have is an error: what replaced it would come along unseen."""

import re
import sys
from pathlib import Path

_NAME = re.compile(r"[a-z0-9-]+")


def name_of(entry: str) -> str:
    found = _NAME.match(entry)
    return found[0] if found else ""


lines = Path(sys.argv[1]).read_text().splitlines()
left_out = {name for line in lines if (name := line.partition("#")[0].strip())}
entries = re.split(r"\n(?=[a-z0-9])", sys.stdin.read().strip())
if unknown := left_out - set(map(name_of, entries)):
    sys.exit(f"the lock has no {', '.join(sorted(unknown))}")
for entry in entries:
    if name_of(entry) not in left_out:
        sys.stdout.write(entry + "\n")
