"""`python -m hocket.coordinator`."""

from hocket.coordinator.service import main
from hocket.kit.process.lifecycle import run

if __name__ == "__main__":
    run("coordinator", main)
