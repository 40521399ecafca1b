"""Serve models by the Open Inference Protocol v2, over HTTP and gRPC.

| room | holds (each imports only from those above it) |
|---|---|
| `errors`, `settings` | errors with their HTTP status; settings and limits of a server |
| `models/` | served models (treekit's and ONNX files) and the repository of their files |
| `protocol/` | requests, tensors as JSON and as bytes, and metadata, without a transport |
| `scheduling` | requests on an event loop, in threads or in batches, with deadlines |
| `client` | the client of ``treekit predict --url`` |
| `http/` | the ASGI application: middleware, protocol routes, JSON routes, the page |
| `grpc/` | the same protocol over gRPC |
| `process/` | sockets, workers, reloads, start and stop |
"""
