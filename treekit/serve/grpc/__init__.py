"""The Open Inference Protocol v2 over gRPC; extra ``treekit-ml[grpc]``.

| module | contents |
|---|---|
| `messages`, ``inference.proto``, ``.binpb`` | the protocol's messages and their tensors |
| `health` | ``grpc.health.v1``, for probes and load balancers, and reflection, for tools |
| `server` | methods, limits, status codes, metrics; startup and shutdown |
"""

from treekit.errors import MissingExtraError

try:
    import grpc  # noqa: F401 - whether it is there
    import grpc_health  # noqa: F401
    import grpc_reflection  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "grpcio, grpcio-health-checking and grpcio-reflection", "grpc"
    ) from error

from treekit.serve.grpc.server import start_grpc as start_grpc
