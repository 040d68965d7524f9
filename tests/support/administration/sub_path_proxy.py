"""A small proxy that serves another server below a path."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

HOP_BY_HOP = {"transfer-encoding", "connection", "keep-alive", "content-length"}


@asynccontextmanager
async def running_proxy(target: str, root: str, *, strip: bool = True) -> AsyncIterator[str]:
    """Serve `target` below `root` until the block ends; yield the address. With `strip` the path is
    removed from forwarded requests."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        path = request.raw_path.removeprefix(root) if strip else request.raw_path
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        async with session.request(
            request.method,
            target + path,
            headers=headers,
            data=await request.read(),
            allow_redirects=False,
        ) as reply:
            answer = web.StreamResponse(status=reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    answer.headers.add(name, value)
            await answer.prepare(request)
            async for part in reply.content.iter_any():
                await answer.write(part)
            return answer

    app = web.Application()
    app.router.add_route("*", root + "/{path:.*}", pass_on)
    listener = socket.create_server(("127.0.0.1", 0))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{root}"
        finally:
            await runner.cleanup()
