"""`python -m hocket.ledger`: the ledger of what every call cost."""

from hocket.kit.process.lifecycle import run
from hocket.ledger.service import main

if __name__ == "__main__":
    run("ledger", main)
