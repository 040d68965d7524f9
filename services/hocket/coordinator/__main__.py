"""`python -m hocket.coordinator`."""

from hocket.coordinator.service import main
from hocket.kit.lifecycle import run

if __name__ == "__main__":
    run("coordinator", main)
