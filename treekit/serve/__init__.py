"""Models behind the Open Inference Protocol v2: a transport-free core under thin faces.

| room | holds (each imports only from those above it) |
|---|---|
| `errors`, `settings` | what is refused, with its HTTP status; what a server is told, its bounds |
| `models/` | a model in service: treekit's or a foreign ONNX file; its files, names and versions |
| `answering/` | requests on an event loop: at once, in threads or together; what all faces share |
| `protocol/` | the protocol without a transport: requests, tensors as JSON and as bytes, metadata |
| `http` | bodies, answers and errors over ASGI |
| `gate/` | who may ask, how much at once; ids, metrics, log lines |
| `plain/` | rows as JSON objects, answers with their reasons: for people and for the page |
| `web/` | the protocol and the page over HTTP, and the application of all of these |
| `rpc/` | the protocol over gRPC |
| `process/` | sockets, connections, workers, reloads, a start and an end |
| `client/` | rows of a table to a model on a server: `treekit predict --url` |
"""
