"""Evaluate the routing rule on a real trace of 12,031 LLM requests, as a discrete-event simulation.

The trace (Mooncake's conversations, one hour) has each request's length and the hashes of its 512-token
blocks. There are eight replicas, each with an LRU prefix cache of 5,000 blocks, that prefill 8,000
tokens a second, one request after another; decode is not modelled. Requests are routed by the gateway's
own `routing`, which knows only what the gateway knows: what it has sent. The simulated replicas are
separate objects with their own caches and queues, and time to first token is measured on *them*.

    .venv/bin/python -m bench.gateway.mooncake [--data FOLDER] [--replicas 8]

For round robin, least load and the rule, this prints the share of prefix tokens that were cached and
the time to first token (mean, p99); then the same for a load in which all requests share one block and
nothing else.
"""

import argparse
import gzip
import heapq
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.support.places import DATA
from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.routing.locality import PrefixCache, Prompt, ReplicaCache
from hocket.gateway.core.routing.replica_choice import CallFacts, View, choose

BLOCK_TOKENS = 512
CACHE_BLOCKS = 5_000
PREFILL_TOKENS_PER_S = 8_000.0
TRACE = "mooncake/conversation_trace.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the trace."""

    at_ms: float
    tokens: int
    blocks: tuple[int, ...]


@dataclass(slots=True)
class Replica:
    """A server that prefills one request after another and evicts the least recently used blocks."""

    held: "OrderedDict[int, None]" = field(default_factory=OrderedDict)
    free_at_ms: float = 0.0

    def serve(self, request: Request) -> tuple[float, int]:
        """Return the time of the first token (ms) and the number of tokens that were cached."""
        hit = 0
        while hit < len(request.blocks) and request.blocks[hit] in self.held:
            hit += 1
        cached = min(hit * BLOCK_TOKENS, request.tokens)
        for block in request.blocks:
            self.held[block] = None
            self.held.move_to_end(block)
        while len(self.held) > CACHE_BLOCKS:
            self.held.popitem(last=False)
        work_ms = (request.tokens - cached) / PREFILL_TOKENS_PER_S * 1000
        self.free_at_ms = max(self.free_at_ms, request.at_ms) + work_ms
        return self.free_at_ms, cached


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one policy on the trace."""

    hit_share: float
    mean_s: float
    p99_s: float


Pick = Callable[[Request, Sequence[Replica], int], int]


def replay(requests: Sequence[Request], replicas: int, pick: Pick) -> Outcome:
    """Send every request to the replica that `pick` chooses, and measure."""
    servers = [Replica() for _ in range(replicas)]
    waits_ms: list[float] = []
    cached = 0
    for number, request in enumerate(requests):
        first_token_ms, hit = servers[pick(request, servers, number)].serve(request)
        waits_ms.append(first_token_ms - request.at_ms)
        cached += hit
    waits_ms.sort()
    return Outcome(
        cached / sum(request.tokens for request in requests),
        sum(waits_ms) / len(waits_ms) / 1000,
        waits_ms[int(0.99 * len(waits_ms))] / 1000,
    )


class Router:
    """The gateway's rule over the replicas of one model, with only the gateway's knowledge of them."""

    def __init__(self, replicas: int) -> None:
        cache = PrefixCache(CACHE_BLOCKS * BLOCK_TOKENS, BLOCK_TOKENS, PREFILL_TOKENS_PER_S)
        specs = tuple(
            BackendSpec("llm", "openai", "m", replica=str(n), limit=1_000_000, prefix_cache=cache)
            for n in range(replicas)
        )
        self._table = RoutingTable({"llm": ModelSpec(specs, choose="locality")})
        self._caches = {spec.key: ReplicaCache(cache) for spec in specs}
        self._in_flight: Counter[str] = Counter()
        self._ends: list[tuple[float, str]] = []

    def pick(self, request: Request, _servers: Sequence[Replica], _number: int) -> int:
        """Choose by the rule, which does not look at the servers."""
        while self._ends and self._ends[0][0] <= request.at_ms:
            self._in_flight[heapq.heappop(self._ends)[1]] -= 1
        prompt = Prompt(request.blocks, request.tokens, BLOCK_TOKENS)
        view = View(request.at_ms, in_flight=self._in_flight, caches=self._caches)
        spec = choose(self._table, CallFacts("llm", prompt=prompt), view).chosen
        assert spec is not None
        cache = self._caches[spec.key]
        fit = cache.fit(prompt, request.at_ms)
        cache.send(prompt, request.at_ms)
        self._in_flight[spec.key] += 1
        heapq.heappush(self._ends, (request.at_ms + fit.wait_ms + fit.prefill_ms, spec.key))
        return int(spec.replica)


def round_robin(_request: Request, servers: Sequence[Replica], number: int) -> int:
    """Send to each replica in turn."""
    return number % len(servers)


def least_loaded(request: Request, servers: Sequence[Replica], _number: int) -> int:
    """Send to the replica with the least queued work."""
    return min(range(len(servers)), key=lambda one: max(servers[one].free_at_ms, request.at_ms))


def trace(folder: Path) -> list[Request]:
    """Return the requests of the trace."""
    with gzip.open(folder / TRACE, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Request(float(row["timestamp"]), row["input_length"], tuple(row["hash_ids"]))
        for row in rows
    ]


def shared_by_all(requests: Sequence[Request]) -> list[Request]:
    """Return the same load, except that requests share their first block and nothing else."""
    fresh = iter(range(1, sys.maxsize))
    return [
        Request(one.at_ms, one.tokens, (0, *(next(fresh) for _ in one.blocks[1:])))
        for one in requests
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--replicas", type=int, default=8)
    options = parser.parse_args()
    requests = trace(options.data)
    for title, load in (("trace", requests), ("one shared block", shared_by_all(requests))):
        print(f"{title}: {len(load)} requests on {options.replicas} replicas")
        for name, pick in (
            ("round robin", round_robin),
            ("least loaded", least_loaded),
            ("locality", Router(options.replicas).pick),
        ):
            found = replay(load, options.replicas, pick)
            print(
                f"  {name:13} prefix hit {found.hit_share:6.1%}   "
                f"TTFT mean {found.mean_s:.3f} s   p99 {found.p99_s:.2f} s"
            )


if __name__ == "__main__":
    main()
