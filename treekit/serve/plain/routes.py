"""Endpoints for people and for the page: rows as JSON objects, answers with their reasons.

| path | answers |
|---|---|
| ``POST /predict`` | labels, probabilities or numbers of rows, and the rules that fired |
| ``POST /explain`` | why one row is answered so, and what would alter the answer |
| ``GET /models`` | what the models are: columns, levels, targets |
| ``GET /models/NAME/rules`` | the rules of a model, searched, a page at a time |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.serve.answering.service import Service
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.gate.record import note_answer
from treekit.serve.http import Endpoint, Reply, json_reply, read_body
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.plain.answers import Answers, foreign_rows
from treekit.serve.plain.bodies import number_of, quoted, read_json, read_object, read_query
from treekit.serve.plain.explain import explained, language_of, read_question
from treekit.serve.plain.foreign import foreign_tensors
from treekit.serve.plain.models import described, models_said
from treekit.serve.plain.rows import Rows, checked_rows
from treekit.serve.plain.rules import Asked, Books

__all__ = ["plain_routes"]

_BRACES = 1000
"""So many braces that begin no row may always be in a body: in texts, such as names."""

_LONG_NAME = 255
_LONG_SEARCH = 200
_MOST_RULES = 500
_MOST_FIRST = 999_999_999

_PREDICT: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "version": (str,),
    "rows": (list,),
    "outputs": (list,),
}


class _Known(NamedTuple):
    """What was made of a model of treekit when it was first asked."""

    rows: Rows
    answers: Answers


class _Prediction(NamedTuple):
    """A request for predictions, read."""

    served: Served
    batch: Batch
    wanted: tuple[str, ...]


class _Plain:
    """The endpoints on one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: WeakKeyDictionary[Served, _Known] = WeakKeyDictionary()
        self._facts: WeakKeyDictionary[Served, dict[str, Any]] = WeakKeyDictionary()
        self._books = Books()

    # ------------------------------------------------------------- predicting

    async def predict(self, scope: Scope, receive: Receive) -> Reply:
        """Answer rows."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        if body.count(b"{") > 2 * runner.limits.rows + _BRACES:  # before seconds go into reading
            raise TooLargeError(
                f"the body holds more objects than the {runner.limits.rows:,} rows that this "
                "server takes at once: send them in parts"
            )
        query = scope["query_string"]
        asked = await runner.sized(len(body), self._read, query, body)
        outputs = await runner.run(asked.served, asked.batch, asked.wanted)
        note_answer(scope, asked.served, asked.batch.rows)
        size = 8 * sum(output.cells.size for output in outputs)
        return Reply(await runner.sized(size, self._answer, asked.served, outputs))

    def _read(self, query: bytes, body: bytes) -> _Prediction:
        value = read_json(body)
        if type(value) is list:
            value = {"rows": value}
        elif type(value) is dict and _is_row(value):
            raise InvalidRequestError(
                "the body is one row, it seems; write rows as a list, [{...}], also if it is one"
            )
        given = read_object(value, _PREDICT, "the body")
        served = self._served(query, given)
        if "rows" not in given:
            raise InvalidRequestError("the body has no 'rows'; write {\"rows\": [{...}]}")
        rows = checked_rows(given["rows"])
        outputs: list[Any] | None = given.get("outputs")
        if served.model is None:
            wanted = served.wanted(outputs and list(map(_output_name, outputs)))
            return _Prediction(served, served.read(foreign_tensors(served, rows)), wanted)
        known = self._of(served)
        wanted = known.answers.wanted(outputs, len(rows), self._service.limits.explained_rows)
        return _Prediction(served, known.rows.batch(rows), wanted)

    def _answer(self, served: Served, outputs: Sequence[Tensor]) -> bytes:
        rows = (
            foreign_rows(outputs)
            if served.model is None
            else self._of(served).answers.rows(outputs)
        )
        return msgspec.json.encode({"model": served.name, "version": served.version, "rows": rows})

    def _served(self, query: bytes, given: dict[str, Any]) -> Served:
        """The model that the body or the URL names."""
        asked = read_query(query, ("model", "version"))
        for name, value in asked.items():
            if given.setdefault(name, value) != value:
                raise InvalidRequestError(
                    f"the URL says {name} {quoted(value)}, and the body {quoted(given[name])}"
                )
        return self._get(given.get("model"), given.get("version"))

    def _get(self, name: str | None, version: str | None) -> Served:
        for text in (name, version):
            if text is not None and len(text) > _LONG_NAME:
                raise NotFoundError(f"there is no model or version {quoted(text)}")
        return self._service.repository.get(name, version)

    def _of(self, served: Served) -> _Known:
        known = self._known.get(served)
        if known is None:
            assert served.model is not None  # noqa: S101 - for the type checker
            known = _Known(Rows(served.model, served.name), Answers(served.model))
            self._known[served] = known
        return known

    # ------------------------------------------------------------- explaining

    async def explain(self, scope: Scope, receive: Receive) -> Reply:
        """Explain the answer of one row."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return Reply(await runner.beside(self._explained, scope, body))

    def _explained(self, scope: Scope, body: bytes) -> bytes:
        given = read_question(body)
        served = self._served(scope["query_string"], given)
        if served.model is None:
            raise InvalidRequestError(
                f"model {served.name!r} is an ONNX file, whose answers this server cannot explain"
            )
        note_answer(scope, served, 1)
        return explained(served, served.model, self._of(served).rows, given)

    # ---------------------------------------------------------------- telling

    async def models(self, scope: Scope, receive: Receive) -> Reply:
        """Say what the models are."""
        del receive
        read_query(scope["query_string"], ())
        return Reply(await self._service.runner.beside(self._models))

    def _models(self) -> bytes:
        repository = self._service.repository
        facts = {}
        for served in list(repository.served):
            own = self._facts.get(served)
            facts[served] = self._facts[served] = described(served) if own is None else own
        return msgspec.json.encode(models_said(repository, facts))

    async def rules(self, scope: Scope, receive: Receive) -> Reply:
        """Say some rules of a model."""
        del receive
        query = read_query(
            scope["query_string"], ("version", "lang", "search", "first", "count", "tree")
        )
        served = self._get(scope["path_params"]["name"], query.get("version"))
        search = query.get("search", "")
        if len(search) > _LONG_SEARCH:
            raise InvalidRequestError(f"'search' has more than {_LONG_SEARCH} characters")
        asked = Asked(
            language_of(query.get("lang", "en")),
            search,
            number_of("first", query.get("first", "0"), 0, _MOST_FIRST),
            number_of("count", query.get("count", "50"), 1, _MOST_RULES),
            number_of("tree", query["tree"], 1, _MOST_FIRST) if "tree" in query else 0,
        )
        return json_reply(await self._service.runner.beside(self._books.page, served, asked))


def _output_name(value: Any) -> str:
    if type(value) is str:
        return value
    raise InvalidRequestError(f"'outputs' holds {quoted(value)}, and an output's name is a text")


def plain_routes(service: Service) -> list[Route]:
    """The paths for people."""
    plain = _Plain(service)
    return [
        Route("/predict", Endpoint(plain.predict), methods=["POST"]),
        Route("/explain", Endpoint(plain.explain), methods=["POST"]),
        Route("/models", Endpoint(plain.models), methods=["GET"]),
        Route("/models/{name}/rules", Endpoint(plain.rules), methods=["GET"]),
    ]


def _is_row(body: dict[str, Any]) -> bool:
    """Whether an object is a row that lacks its list: cells alone, and no key of a request."""
    plain = not any(type(value) in (list, dict) for value in body.values())
    return bool(body) and plain and not body.keys() & _PREDICT.keys()
