"""The Open Inference Protocol v2 over gRPC; extra ``treekit-ml[grpc]``.

| module | contents |
|---|---|
| `messages`, ``inference.proto``, ``.binpb`` | the protocol's messages and their tensors |
| `server` | methods, limits, status codes, metrics; startup and shutdown |
"""

from treekit.errors import MissingExtraError

try:
    import grpc  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtraError("grpcio", "grpc") from error

from treekit.serve.grpc.server import start_grpc as start_grpc
