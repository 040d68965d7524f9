"""NVIDIA Triton Inference Server as a backend, over gRPC or HTTP."""

from collections.abc import Callable

from hocket.gateway.backends.triton.backend import TritonBackend
from hocket.gateway.backends.triton.over_http import OverHttp
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import RoutingInvalid

GRPC_SCHEMES = ("grpc://", "grpcs://")


def build_triton(spec: BackendSpec, now_ms: Callable[[], float]) -> TritonBackend:
    """Return the backend of a spec; raise RoutingInvalid if gRPC is configured but not installed."""
    if not spec.base_url.startswith(GRPC_SCHEMES):
        return TritonBackend(spec, OverHttp(spec, now_ms))
    try:
        from hocket.gateway.backends.triton.over_grpc import OverGrpc
    except ImportError as error:
        raise RoutingInvalid(
            field=f"backend {spec.name}",
            reason=f"gRPC to Triton needs a package that is missing ({error})",
            cure="Run `pip install 'tritonclient[grpc]'`, or use http:// in `base_url`.",
        ) from error
    return TritonBackend(spec, OverGrpc(spec, now_ms))
