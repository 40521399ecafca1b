"""The public API of the server as text: routes, description, metrics, gRPC, settings.

The application runs in this process and handles one request for each route.  It uses the
modules of treekit that ``examples/ask_a_server.py`` uses.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from tests.snapshots.public_api import PACKAGE, plain_environment, section, small_model
from tests.snapshots.signatures import class_lines
from treekit.serve.http.app import list_routes, make_app
from treekit.serve.http.metrics import Metrics, make_metrics_route
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service
from treekit.serve.settings import Limits, ServeSettings

__all__ = ["server"]

_ROW = b'{"model": "m", "rows": [{"x": 1}]}'


class Reply(NamedTuple):
    """Response of the application."""

    status: int
    body: bytes


def server() -> str:
    """Return routes, OpenAPI description, metrics, gRPC methods and settings of the server."""
    with plain_environment():
        return "\n".join(["# Server, written by: python -m tests.snapshots", *_lines(), ""])


def _lines() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        small_model().save(Path(folder) / "m.treekit")
        # A rejected file, for metrics; it causes two log lines on stderr.
        (Path(folder) / "faulty.treekit").write_bytes(b"no model")
        repository = Repository((folder,))
        service = Service(repository)
        app = make_app(service)
        repository.refresh()  # after make_app, so metrics count both files
        try:
            routes = _routes(Service(repository))
            description, metrics = asyncio.run(_ask_all(app, routes))
        finally:
            service.runner.close()
    yield from section("HTTP routes", (f"{path} {method}" for path, method in routes))
    yield from section("OpenAPI operations, /openapi.json", _operation_lines(description))
    yield from section("OpenAPI schemas", _schema_lines(description))
    yield from section("metrics, /metrics", _metric_lines(metrics))
    yield from section("gRPC", _grpc_lines())
    yield from section("settings of treekit serve", class_lines("settings", ServeSettings, {}))
    yield from class_lines("limits", Limits, {})


# ------------------------------------------------------------------ routes


def _routes(service: Service) -> list[tuple[str, str]]:
    """List paths and methods of the application."""
    routes = (*list_routes(service), make_metrics_route(Metrics(service)))
    return sorted((route.path, route.method) for route in routes)


# ------------------------------------------------------------------ requests


async def _ask_all(app: Any, routes: Iterable[tuple[str, str]]) -> tuple[Any, str]:
    """Request every route once; return the description and the metrics, which then have samples."""
    for path, method in routes:
        place = path.replace("{name}", "m").replace("{version}", "1")
        await _ask(app, place, method, b"{}" if method == "POST" else b"")
    answered = await _ask(app, "/predict", "POST", _ROW)
    assert answered.status == 200, answered
    description, metrics = await _ask(app, "/openapi.json"), await _ask(app, "/metrics")
    assert description.status == metrics.status == 200
    return json.loads(description.body), metrics.body.decode()


async def _ask(app: Any, path: str, method: str = "GET", body: bytes = b"") -> Reply:
    """Make one request to an ASGI application."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body))],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }
    arriving = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not arriving:
            await asyncio.Event().wait()  # the client stays connected
        return arriving.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Reply(sent[0]["status"], b"".join(message.get("body", b"") for message in sent))


# ------------------------------------------------------------------ description and metrics


def _operation_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"version: {document['openapi']}"
    for path, item in sorted(document["paths"].items()):
        shared = item.get("parameters", [])
        for method in sorted(item.keys() - {"parameters"}):
            operation = item[method]
            given = [*shared, *operation.get("parameters", ())]
            parameters = sorted(f"{one['name']} in {one['in']}" for one in given)
            content = operation.get("requestBody", {}).get("content", {})
            answer = operation["responses"].get("200", {}).get("content", {})
            yield f"{path} {method.upper()}: {operation['operationId']}"
            yield f"    statuses: {', '.join(sorted(operation['responses']))}"
            yield from (f"    parameter: {name}" for name in parameters)
            yield from (f"    request: {text}" for text in _content_texts(content))
            yield from (f"    answer: {text}" for text in _content_texts(answer))


def _content_texts(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield media types with property paths; a named schema ends a path."""
    for media, item in sorted(content.items()):
        yield media
        yield from sorted({f"{media} {path}" for path in _property_paths(item.get("schema", {}))})


def _property_paths(schema: Mapping[str, Any], before: str = "") -> Iterator[str]:
    if "$ref" in schema:
        yield f"{before or '.'} is {schema['$ref'].rpartition('/')[2]}"
    for key, inner in schema.get("properties", {}).items():
        yield f"{before}.{key}"
        yield from _property_paths(inner, f"{before}.{key}")
    if isinstance(schema.get("items"), dict):
        yield from _property_paths(schema["items"], f"{before}[]")
    for kind in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(kind, ()):
            yield from _property_paths(inner, before)


def _schema_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield schemas with their properties; optional ones have a question mark."""
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield name
        required = schema.get("required", ())
        for key in sorted(schema.get("properties", ())):
            yield f"    {key}{'' if key in required else '?'}"


def _metric_lines(text: str) -> Iterator[str]:
    """Yield name, type, labels and meaning of treekit's own metrics."""
    kinds = dict(re.findall(r"^# TYPE (treekit_\w+) (\w+)$", text, re.M))
    meanings = dict(re.findall(r"^# HELP (treekit_\w+) (.*)$", text, re.M))
    labels: dict[str, set[str]] = {}
    endpoints: set[str] = set()
    for sample, inner in re.findall(r"^(treekit_\w+)(?:\{(.*)\})? \S+$", text, re.M):
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inner)
        family = sample if sample in kinds else sample.rpartition("_")[0]
        labels.setdefault(family, set()).update(name for name, _ in pairs)
        endpoints |= {value for name, value in pairs if name == "endpoint"}
    for name in sorted(kinds):
        if name.endswith("_created"):  # added by prometheus_client to each counter
            continue
        yield f"{name}: {kinds[name]}, {meanings[name]}"
        assert name in labels, f"no request makes a sample of {name}"
        yield from (f"    label {label}" for label in sorted(labels[name]))
    bounds = dict.fromkeys(re.findall(r'le="([^"]*)"', text))
    yield f"bounds of buckets: {', '.join(bounds)}"
    yield f"values of endpoint: {', '.join(sorted(endpoints))}"


# ------------------------------------------------------------------ gRPC


def _grpc_lines() -> Iterator[str]:
    """Yield services, methods and messages of the included descriptions."""
    for path in sorted(PACKAGE.rglob("*.binpb")):
        (file,) = FileDescriptorSet.FromString(path.read_bytes()).file
        for service in sorted(file.service, key=lambda one: one.name):
            yield f"service {file.package}.{service.name}"
            for method in sorted(service.method, key=lambda one: one.name):
                taken, returned = _last(method.input_type), _last(method.output_type)
                yield f"    {method.name}({taken}) -> {returned}"
        yield from _message_lines("", file.message_type)


def _message_lines(outer: str, messages: Iterable[Any]) -> Iterator[str]:
    for message in sorted(messages, key=lambda one: one.name):
        yield f"message {outer}{message.name}"
        for field in sorted(message.field, key=lambda one: one.number):
            plain = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
            many = "repeated " * (field.label == FieldDescriptorProto.LABEL_REPEATED)
            yield f"    {field.number} {field.name}: {many}{_last(field.type_name) or plain}"
        yield from _message_lines(f"{outer}{message.name}.", message.nested_type)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
