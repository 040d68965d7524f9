"""`python -m hocket.gateway`: the inference gateway."""

from hocket.gateway.service import main
from hocket.kit.process.lifecycle import run

if __name__ == "__main__":
    run("gateway", main, has_door=True)
