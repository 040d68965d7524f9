"""`hocket emulate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hocket.emulator.configuration import EmulatorConfig


def emulate(
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file that describes several kinds of engines; replaces the options."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Name of the model.")] = "emulated",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port of the first engine; 0 picks any free one.")
    ] = 8_000,
    replicas: Annotated[int, typer.Option(help="Number of engines, on consecutive ports.")] = 1,
    speed: Annotated[float, typer.Option(help="Virtual seconds per real second.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed for faults.")] = 0,
    prefill_tokens_per_s: Annotated[
        float, typer.Option(help="Prefill speed, in tokens per second.")
    ] = 8_000.0,
    decode_tokens_per_s: Annotated[
        float, typer.Option(help="Decode speed of one sequence, in tokens per second.")
    ] = 50.0,
    batch_tokens_per_s: Annotated[
        float, typer.Option(help="Decode speed of all sequences together, in tokens per second.")
    ] = 2_000.0,
    max_running: Annotated[
        int, typer.Option(help="Maximum number of sequences in the batch.")
    ] = 64,
    cache_blocks: Annotated[
        int, typer.Option(help="Number of blocks in the prefix cache.")
    ] = 5_000,
    block_tokens: Annotated[int, typer.Option(help="Tokens per block.")] = 16,
    output_tokens: Annotated[
        int, typer.Option(help="Tokens in a reply if max_tokens is not set.")
    ] = 64,
    reply: Annotated[
        str, typer.Option(help="`words`, or `echo` to repeat the user's text.")
    ] = "words",
    tool_turns: Annotated[int, typer.Option(help="Turns that call a tool before the answer.")] = 1,
    cold: Annotated[bool, typer.Option("--cold", help="Start cold, with no model loaded.")] = False,
    provision_s: Annotated[
        float, typer.Option(help="Cold start: seconds to provision a machine.")
    ] = 0.0,
    load_s: Annotated[float, typer.Option(help="Cold start: seconds to load the model.")] = 0.0,
    idle_s: Annotated[
        float, typer.Option(help="Go cold after this many idle seconds; 0: never.")
    ] = 0.0,
    while_cold: Annotated[
        str, typer.Option(help="While cold, requests `wait` or are refused (`refuse`).")
    ] = "wait",
    error_rate: Annotated[float, typer.Option(help="Share of requests answered with a 500.")] = 0.0,
    rate_limit_rate: Annotated[
        float, typer.Option(help="Share of requests answered with a 429.")
    ] = 0.0,
    hang_rate: Annotated[
        float, typer.Option(help="Share of requests that are never answered.")
    ] = 0.0,
    disconnect_rate: Annotated[
        float, typer.Option(help="Share of requests cut off mid-response.")
    ] = 0.0,
) -> None:
    """Emulate inference engines, without a model.

    Serves OpenAI's API (chat, completions, embeddings, models, streaming) and Anthropic's Messages API
    with the timing of an engine: prefill, continuous batching, prefix cache, cold start, faults; and
    vLLM's metrics at /metrics.
    Times are virtual: with --speed 100 an engine runs 100 times as fast. See docs/how-to/emulator.md.
    """
    import asyncio

    document: dict[str, Any] = {
        "host": host,
        "speed": speed,
        "seed": seed,
        "engines": [
            {
                "port": port,
                "replicas": replicas,
                "profile": {
                    "model": model,
                    "prefill_tokens_per_s": prefill_tokens_per_s,
                    "decode_tokens_per_s": decode_tokens_per_s,
                    "batch_tokens_per_s": batch_tokens_per_s,
                    "max_running": max_running,
                    "cache_blocks": cache_blocks,
                    "block_tokens": block_tokens,
                    "output_tokens": output_tokens,
                    "reply": reply,
                    "tool_turns": tool_turns,
                    "warm": not cold,
                    "provision_s": provision_s,
                    "load_s": load_s,
                    "idle_s": idle_s,
                    "while_cold": while_cold,
                },
                "faults": {
                    "error_rate": error_rate,
                    "rate_limit_rate": rate_limit_rate,
                    "hang_rate": hang_rate,
                    "disconnect_rate": disconnect_rate,
                },
            }
        ],
    }
    from hocket.emulator.configuration import parse
    from hocket.kit.process.config import load

    if config is None:
        described = parse(document, named=_option)
    else:
        described = parse(load(config, named_by="--config"))
    asyncio.run(_serve(described))


def _option(field: str) -> str:
    """Return the option of a field in the document that options describe."""
    name = {"engines.0": "port", "engines.0.faults": "error_rate"}.get(field, field)
    return f"--{name.rpartition('.')[2].replace('_', '-')}"


async def _serve(config: "EmulatorConfig") -> None:
    import asyncio
    import signal

    from hocket.cli.terminal.console import out
    from hocket.emulator.running import running

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with running(config) as engines:
        for one in engines:
            out.print(f"{one.engine.profile.model}  {one.url}/v1", markup=False)
        await stopping.wait()
