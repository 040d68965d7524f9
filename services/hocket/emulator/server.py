"""One emulated engine over HTTP: the model's API, vLLM's health and metrics endpoints, and
`/emulator` for control.

Every request is recorded in the journal with its metered usage, whatever its outcome.
"""

from aiohttp import web
from prometheus_client import generate_latest

from hocket.emulator.control_api import ControlApi
from hocket.emulator.core.faults import FaultRates, Faults
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.engine_parts import EngineParts
from hocket.emulator.failures import errors
from hocket.emulator.journal import Journal
from hocket.emulator.metrics import EngineMetrics
from hocket.emulator.model_api import ModelApi
from hocket.emulator.serving import Serving, VirtualClock
from hocket.kit.web_requests import in_url

MAX_BODY_BYTES = 64 * 1024 * 1024
STOP_TIMEOUT_S = 1.0


class EmulatedEngine:
    """One engine and its HTTP application; build it inside a running event loop."""

    def __init__(
        self,
        profile: EngineProfile,
        *,
        speed: float = 1.0,
        seed: int = 0,
        rates: FaultRates | None = None,
        name: str = "0",
    ) -> None:
        self.profile = profile
        self.serving = Serving(profile, VirtualClock(speed))
        self.faults = Faults(rates or FaultRates(), seed=seed)
        self.metrics = EngineMetrics(self.serving, name)
        self.journal = Journal(self.metrics, name, profile.journal_entries)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen, and return the URL; port 0 chooses any free port."""
        runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=STOP_TIMEOUT_S,
        )
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        self._runner = runner
        bound_host, bound_port = runner.addresses[0][:2]
        return f"http://{in_url(bound_host)}:{bound_port}"

    async def stop(self) -> None:
        """Take no more requests, and drop those in progress."""
        self.serving.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _application(self) -> web.Application:
        parts = EngineParts(self.profile, self.serving, self.faults, self.journal)
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors])
        application.add_routes(ModelApi(parts).routes())
        application.add_routes(ControlApi(parts).routes())
        application.add_routes(
            [web.get("/health", self._health), web.get("/metrics", self._metrics)]
        )
        return application

    async def _health(self, _request: web.Request) -> web.Response:
        self.serving.warmth.advance(self.serving.clock.now_ms())
        return web.Response(status=200 if self.serving.warmth.ready else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self.metrics.registry)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")
