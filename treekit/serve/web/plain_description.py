"""The endpoints for people as paths of an OpenAPI document (version 3.1)."""

from __future__ import annotations

from typing import Any

from treekit.serve.web.description import json_body, operation
from treekit.serve.web.oip_description import NAME

__all__ = ["plain_paths"]

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_CELL: Json = {"type": ["string", "number", "boolean", "null"]}
_ROW: Json = {
    "type": "object",
    "description": "A value for each column of the model; null or NaN where it is missing.",
    "minProperties": 1,
    "additionalProperties": _CELL,
}


def plain_paths() -> Json:
    """The paths `treekit.serve.plain.routes.plain_routes` answers, as OpenAPI describes them."""
    return {
        "/predict": {"post": _predict()},
        "/explain": {"post": _explain()},
        "/models": {"get": _models()},
        "/models/{model_name}/rules": {"parameters": [NAME], "get": _rules()},
        "/metrics": {"get": _metrics()},
    }


def _metrics() -> Json:
    told = operation("metrics", "Tell Prometheus of requests, rows, models and processes.", _TEXT)
    openmetrics = "application/openmetrics-text"
    told["responses"]["200"]["content"] = {
        media: {"schema": _TEXT} for media in ("text/plain", openmetrics)
    }
    return told


def _predict() -> Json:
    names = ["label", "probabilities", "value", "leaf", "rule", "contributions", "bias"]
    rows: Json = {"type": "array", "minItems": 1, "items": _ROW}
    body = _object(
        {
            **_which(),
            "rows": rows,
            "outputs": {
                "type": ["array", "null"],
                "uniqueItems": True,
                "description": f"Of a model of treekit: {', '.join(names)}.",
                "items": _TEXT,
            },
        },
        ["rows"],
    )
    body["additionalProperties"] = False
    answer = _object({"model": _TEXT, "version": _TEXT, "rows": _list(_answered())})
    return operation(
        "predict",
        "Answer rows that are JSON objects.",
        answer,
        body=json_body({"anyOf": [body, rows]}),
        parameters=[_query("model", _TEXT), _query("version", _TEXT)],
        refusals=("400", "404", "415"),
    )


def _answered() -> Json:
    """A row of an answer; those of foreign models hold their outputs by name."""
    one = {
        "label": {"type": ["string", "number", "boolean"]},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
        "value": {"type": ["number", "null"]},
        "contributions": {
            "type": "object",
            "description": "For each column a number, or a number for each class.",
        },
        "bias": {"type": ["number", "object"]},
    }
    fired = {"tree": {"type": "integer", "minimum": 1}, "rule": _TEXT}
    targets = {"type": "object", "additionalProperties": _object(one, [])}
    several = {
        "targets": targets,
        "leaf": _list({"type": "integer"}),
        "rule": _TEXT,
        "rules": _list(_object(fired)),
    }
    return _object(one | several, [])


def _explain() -> Json:
    whole: Json = {"type": ["integer", "null"]}
    body = _object(
        {
            **_which(),
            "row": _ROW,
            "lang": {"type": ["string", "null"], "enum": ["en", "zh", None]},
            "tree": whole | {"minimum": 1, "description": "The tree whose way is told, from 1."},
            "changes": whole | {"minimum": 0, "maximum": 2},
            "wish": _CELL | {"description": "A label, or a range such as '>= 10'."},
            "target": {"type": ["string", "null"]},
            "fixed": {"type": ["array", "null"], "items": _TEXT},
        },
        ["row"],
    )
    body["additionalProperties"] = False
    line = {"type": "array", "prefixItems": [_TEXT, {"type": "boolean"}], "minItems": 2}
    answer = {"model": _TEXT, "version": _TEXT, "explanation": {"type": "object"}}
    return operation(
        "explain",
        "Say why one row is answered so, and what would alter the answer.",
        _object(answer | {"text": _list(line)}),
        body=json_body(body),
        parameters=[_query("model", _TEXT), _query("version", _TEXT)],
        refusals=("400", "404", "415"),
    )


def _models() -> Json:
    model = {
        "name": _TEXT,
        "version": _TEXT,
        "versions": _list(_TEXT),
        "state": {"enum": ["READY", "UNAVAILABLE"]},
        "reason": _TEXT,
    }
    summary = "Say what each model is: columns, levels, targets."
    return operation("models", summary, _list(_object(model)))


def _rules() -> Json:
    whole: Json = {"type": "integer"}
    rule = {
        "number": whole,
        "tree": whole,
        "conditions": _list(_TEXT),
        "text": _TEXT,
        "says": _TEXT,
        "shares": _TEXT,
        "weight": {"type": "number"},
    }
    page = {"model": _TEXT, "version": _TEXT, "total": whole, "found": whole}
    return operation(
        "rules",
        "Say the rules of a model, a page at a time, or those that hold a text.",
        _object(page | {"rules": _list(_object(rule))}),
        parameters=[
            _query("version", _TEXT),
            _query("lang", {"enum": ["en", "zh"], "default": "en"}),
            _query("search", _TEXT | {"maxLength": 200}),
            _query("first", whole | {"minimum": 0, "maximum": 999_999_999, "default": 0}),
            _query("count", whole | {"minimum": 1, "maximum": 500, "default": 50}),
            _query("tree", whole | {"minimum": 1, "maximum": 999_999_999}),
        ],
        refusals=("400", "404"),
    )


def _which() -> Json:
    """The model and the version that a body may name."""
    return {"model": {"type": ["string", "null"]}, "version": {"type": ["string", "null"]}}


def _object(properties: Json, required: list[str] | None = None) -> Json:
    """An object; by default with all of its properties."""
    needed = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}
