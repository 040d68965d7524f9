"""Backends: the ways to reach a served model, behind one protocol."""

from collections.abc import Callable

from hocket.gateway.backends.anthropic import AnthropicBackend
from hocket.gateway.backends.function import FunctionBackend
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.backends.protocol import Backend
from hocket.gateway.backends.triton import build_triton
from hocket.gateway.core.config.table import BackendSpec


def build(spec: BackendSpec, now_ms: Callable[[], float]) -> Backend:
    """Return the backend of a spec; raise RoutingInvalid if its function
    or package is not available."""
    if spec.kind == "function":
        return FunctionBackend(spec)
    if spec.kind == "triton":
        return build_triton(spec, now_ms)
    if spec.kind == "anthropic":
        return AnthropicBackend(spec, now_ms)
    return OpenAIBackend(spec, now_ms)
