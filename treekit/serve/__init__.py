"""Serve models over HTTP and gRPC with the Open Inference Protocol v2.

| module | contents (each imports only from those above it) |
|---|---|
| `errors`, `settings` | errors with their HTTP status; server settings and limits |
| `cancellation` | end of work in threads for which no client waits |
| `models/` | served models and the model repository |
| `protocol/` | requests, tensors as JSON and bytes, and metadata, independent of the transport |
| `scheduling` | execution on the event loop, in threads or in batches, with deadlines |
| `client` | client used by ``treekit predict --url`` |
| `http/` | ASGI application: access, logs, metrics, protocol routes, JSON routes, web page |
| `grpc/` | the protocol over gRPC |
| `process/` | sockets, workers, reloading, startup and shutdown |
"""
