"""Models behind the Open Inference Protocol v2: a transport-free core under thin faces.

| module | holds |
|---|---|
| `errors`, `settings`, `tensors` | what is refused; settings and bounds; the protocol's tensors |
| `served`, `of_treekit`, `of_onnx` | a model in service: treekit's, or a foreign ONNX file |
| `reasons`, `contributions` | rules that fired, and what columns add, as outputs |
| `loading`, `repository` | files to models in service; names, versions, load, unload, refresh |
| `running`, `service` | requests on an event loop, within limits; what all faces share |
| `wire`, `binary` | the protocol's JSON, and its tensors as bytes |
| `plain`, `plain_json` | endpoints for people; bodies and queries, strictly read |
| `plain_rows`, `plain_foreign`, `plain_answers` | rows as JSON objects, and their answers |
| `plain_explain`, `plain_models`, `plain_rules` | one row explained; models told; rules searched |
| `http`, `oip`, `app` | bodies and errors over ASGI; the protocol's paths; the application |
"""
