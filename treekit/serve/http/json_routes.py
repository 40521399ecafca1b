"""Endpoints for people and the web page: JSON rows, predictions and explanations.

| path | response |
|---|---|
| ``POST /predict`` | labels, probabilities or numbers of rows, and matching rules |
| ``POST /explain`` | explanation of the prediction of one row, with counterfactuals |
| ``GET /models`` | descriptions of the models: columns, categories, targets |
| ``GET /models/NAME/rules`` | rules of a model, searchable and paged |
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.data.schema import level_text
from treekit.data.table import make_table, objects
from treekit.errors import DataError, SettingError
from treekit.rules.extract import is_listed, joinable_texts
from treekit.rules.language import known_languages, language
from treekit.rules.merge import joined_rules
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import name_text, numerals
from treekit.rules.write_text import AnswerTexts
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import Endpoint, Reply, json_reply, read_body
from treekit.serve.http.json_rows import (
    Rows,
    checked_rows,
    foreign_tensors,
    near,
    number_of,
    quoted,
    read_json,
    read_object,
    read_query,
)
from treekit.serve.http.metrics import note_answer
from treekit.serve.models.repository import Entry, Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.scheduling import Service

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "Answers",
    "Asked",
    "Books",
    "described",
    "explained",
    "language_of",
    "models_said",
    "plain_routes",
    "read_question",
]


# ---------------------------------------------------------------- routes

_BRACES = 1000
"""Opening braces allowed in a body in addition to those of rows: in strings, such as names."""

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
    """Converters of a treekit model, created at its first request."""

    rows: Rows
    answers: Answers


class _Prediction(NamedTuple):
    """Parsed request for predictions."""

    served: Served
    batch: Batch
    wanted: tuple[str, ...]


class _Plain:
    """JSON endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: WeakKeyDictionary[Served, _Known] = WeakKeyDictionary()
        self._facts: WeakKeyDictionary[Served, dict[str, Any]] = WeakKeyDictionary()
        self._books = Books()

    # ------------------------------------------------------------- prediction

    async def predict(self, scope: Scope, receive: Receive) -> Reply:
        """Predict rows."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        if body.count(b"{") > 2 * runner.limits.rows + _BRACES:  # before slow parsing
            raise TooLargeError(
                f"the body contains more objects than the {runner.limits.rows:,} rows that this "
                "server takes at once: send them in parts"
            )
        query = scope["query_string"]
        request = await runner.sized(len(body), self._read, query, body)
        outputs = await runner.run(request.served, request.batch, request.wanted)
        note_answer(scope, request.served, request.batch.rows)
        size = 8 * sum(output.cells.size for output in outputs)
        return Reply(await runner.sized(size, self._answer, request.served, outputs))

    def _read(self, query: bytes, body: bytes) -> _Prediction:
        value = read_json(body)
        if type(value) is list:
            value = {"rows": value}
        elif type(value) is dict and _is_row(value):
            raise InvalidRequestError(
                "the body seems to be a single row; give a list of rows, [{...}]"
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
        """Return the model named in the body or the URL."""
        parameters = read_query(query, ("model", "version"))
        for name, value in parameters.items():
            if given.setdefault(name, value) != value:
                raise InvalidRequestError(
                    f"the URL has {name} {quoted(value)}, but the body has {quoted(given[name])}"
                )
        return self._get(given.get("model"), given.get("version"))

    def _get(self, name: str | None, version: str | None) -> Served:
        for text in (name, version):
            if text is not None and len(text) > _LONG_NAME:
                raise NotFoundError(f"unknown model or version {quoted(text)}")
        return self._service.repository.get(name, version)

    def _of(self, served: Served) -> _Known:
        known = self._known.get(served)
        if known is None:
            assert served.model is not None  # noqa: S101 - for the type checker
            known = _Known(Rows(served.model, served.name), Answers(served.model))
            self._known[served] = known
        return known

    # ------------------------------------------------------------ explanation

    async def explain(self, scope: Scope, receive: Receive) -> Reply:
        """Explain the prediction of one row."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return Reply(await runner.beside(self._explained, scope, body))

    def _explained(self, scope: Scope, body: bytes) -> bytes:
        given = read_question(body)
        served = self._served(scope["query_string"], given)
        if served.model is None:
            raise InvalidRequestError(
                f"model {served.name!r} is an ONNX file, whose predictions cannot be explained"
            )
        note_answer(scope, served, 1)
        return explained(served, served.model, self._of(served).rows, given)

    # ------------------------------------------------------ models and rules

    async def models(self, scope: Scope, receive: Receive) -> Reply:
        """Describe the models."""
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
        """List rules of a model."""
        del receive
        query = read_query(
            scope["query_string"], ("version", "lang", "search", "first", "count", "tree")
        )
        served = self._get(scope["path_params"]["name"], query.get("version"))
        search = query.get("search", "")
        if len(search) > _LONG_SEARCH:
            raise InvalidRequestError(f"'search' has more than {_LONG_SEARCH} characters")
        rule_query = Asked(
            language_of(query.get("lang", "en")),
            search,
            number_of("first", query.get("first", "0"), 0, _MOST_FIRST),
            number_of("count", query.get("count", "50"), 1, _MOST_RULES),
            number_of("tree", query["tree"], 1, _MOST_FIRST) if "tree" in query else 0,
        )
        return json_reply(await self._service.runner.beside(self._books.page, served, rule_query))


def _output_name(value: Any) -> str:
    if type(value) is str:
        return value
    raise InvalidRequestError(f"'outputs' must be a list of strings, got {quoted(value)} in it")


def plain_routes(service: Service) -> list[Route]:
    """Return the routes of the JSON endpoints."""
    plain = _Plain(service)
    return [
        Route("/predict", Endpoint(plain.predict), methods=["POST"]),
        Route("/explain", Endpoint(plain.explain), methods=["POST"]),
        Route("/models", Endpoint(plain.models), methods=["GET"]),
        Route("/models/{name}/rules", Endpoint(plain.rules), methods=["GET"]),
    ]


def _is_row(body: dict[str, Any]) -> bool:
    """Return whether an object looks like a row without a list: only cells, no request keys."""
    plain = not any(type(value) in (list, dict) for value in body.values())
    return bool(body) and plain and not body.keys() & _PREDICT.keys()


# ---------------------------------------------------------------- predictions
# Outputs of a model as JSON objects, one per row, with names of classes and targets.

Cells = npt.NDArray[Any]

_REASONS = ("leaf", "rule", "contributions", "bias")


class Answers:
    """Converter of the outputs of one model to JSON rows.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        schema = model.schema
        self._outputs, self._several = schema.outputs, bool(schema.more)
        self._blocks = list(itertools.pairwise(schema.blocks))
        self._votes = schema.task == "classification"
        self._classes = [[str(level_text(c)) for c in o.classes] for o in schema.outputs]
        self._names = schema.names
        self._one_tree, self._listed = model.n_trees == 1, is_listed(model)
        self._usual = ("label", "probabilities") if self._votes else ("value",)
        self.rule_is_short = self._one_tree or self._listed

    def wanted(self, asked: Sequence[Any] | None, n_rows: int, most: int) -> tuple[str, ...]:
        """Return the model outputs for those selected in a request, or the default ones.

        For single trees and rule lists the default includes the rule, if the request has at
        most `most` rows, the limit for explanations.

        Raises
        ------
        InvalidRequestError
            If an output is unknown or a duplicate.
        """
        if asked is None:
            rule = ("rule",) if self.rule_is_short and n_rows <= most else ()
            return (*self._named(self._usual), *rule)
        known = (*self._usual, *_REASONS)
        for name in asked:
            if name not in known:
                hint = near(name, known) if isinstance(name, str) else f"known: {', '.join(known)}"
                raise InvalidRequestError(f"unknown output {quoted(name)}; {hint}")
        if len(set(asked)) < len(asked) or not asked:
            raise InvalidRequestError("'outputs' must name one output or more, each only once")
        return self._named(asked)

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the model's outputs, with one label per target."""
        found: list[str] = []
        for name in names:
            if self._several and name in ("label", "probabilities"):
                found += [f"{name}_{k}" for k in range(len(self._outputs))]
            else:
                found.append(name)
        return tuple(found)

    def rows(self, outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
        """Return an object for each row."""
        given = {output.name: output.cells for output in outputs}
        if not self._several:
            rows = self._target(0, given, "")
        else:
            parts = [self._target(k, given, f"_{k}") for k in range(len(self._outputs))]
            names = [output.name for output in self._outputs]
            rows = [
                {"targets": dict(zip(names, own, strict=True))} for own in zip(*parts, strict=True)
            ]
        if "leaf" in given:
            for row, leaves in zip(rows, given["leaf"].tolist(), strict=True):
                row["leaf"] = leaves
        if "rule" in given:
            for row, texts in zip(rows, given["rule"].tolist(), strict=True):
                row.update(self._rule(texts))
        return rows

    def _rule(self, texts: list[str]) -> dict[str, Any]:
        """Return the rule, or the rules of all trees, or the matching rules of a rule list."""
        if self._one_tree:
            return {"rule": texts[0]}
        numbered = enumerate(texts, 1)
        return {
            "rules": [
                {"tree": number, "rule": text}
                for number, text in numbered
                if not self._listed or text != "otherwise"
            ]
        }

    def _target(self, k: int, given: Mapping[str, Cells], end: str) -> list[dict[str, Any]]:
        """Return an object with the outputs of one target for each row."""
        n_rows = len(next(iter(given.values())))
        rows: list[dict[str, Any]] = [{} for _ in range(n_rows)]
        if f"label{end}" in given:
            for row, label in zip(rows, given[f"label{end}"].tolist(), strict=True):
                row["label"] = label
        if f"probabilities{end}" in given:
            names = self._classes[k]
            shares = given[f"probabilities{end}"].tolist()
            for row, own in zip(rows, shares, strict=True):
                row["probabilities"] = dict(zip(names, own, strict=True))
        if "value" in given:
            values = given["value"][:, k] if self._several else given["value"]
            for row, value in zip(rows, values.tolist(), strict=True):
                row["value"] = value
        first, last = self._blocks[k]
        if "contributions" in given:
            parts = given["contributions"][:, :, first:last].tolist()
            for row, columns in zip(rows, parts, strict=True):
                added = map(self._by_class, itertools.repeat(k), columns)
                row["contributions"] = dict(zip(self._names, added, strict=True))
        if "bias" in given:
            for row, own in zip(rows, given["bias"][:, first:last].tolist(), strict=True):
                row["bias"] = self._by_class(k, own)
        return rows

    def _by_class(self, k: int, values: list[float]) -> Any:
        """Return the number of a numeric target, or a number for each class."""
        return dict(zip(self._classes[k], values, strict=True)) if self._votes else values[0]


def foreign_rows(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Return a JSON row for each row of a foreign model, with its outputs by name."""
    columns = [(output.name, np.asarray(output.cells).tolist()) for output in outputs]
    names = [name for name, _ in columns]
    cells = zip(*(values for _, values in columns), strict=True)
    return [dict(zip(names, own, strict=True)) for own in cells]


# ---------------------------------------------------------------- explanations
# Requests about one row, and the explanation of `treekit explain` as JSON.

_LONG_TEXT = 10_000

_MOST_BYTES = 1 << 19
"""Maximum bytes of a request, as each cell occurs several times in the explanation."""

_PAIRS = 5_000_000
"""Maximum cells examined when searching for counterfactuals of two columns: below 1 s."""

_FIELDS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "version": (str,),
    "row": (dict,),
    "lang": (str,),
    "tree": (int,),
    "changes": (int,),
    "wish": (str, int, float, bool),
    "target": (str,),
    "fixed": (list,),
}


def read_question(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a request for an explanation and check the types of its fields.

    Raises
    ------
    InvalidRequestError
        If a field is invalid or missing; the message names it.
    TooLargeError
        If the row is too large to explain.
    """
    if len(body) > _MOST_BYTES:
        raise TooLargeError(
            f"the body is longer than the {_MOST_BYTES:,} bytes of a row that can be explained"
        )
    given = read_object(read_json(body), _FIELDS, "the body")
    if "row" not in given:
        raise InvalidRequestError("the body has no 'row'; write {\"row\": {...}}")
    return given


def explained(served: Served, model: Model, rows: Rows, given: dict[str, Any]) -> bytes:
    """Explain a row as JSON; to be called in a thread.

    Raises
    ------
    InvalidRequestError
        If the row is invalid, or a tree, wish, target, column or language is unknown.
    """
    from treekit.explain import explain

    row, words = given["row"], language(language_of(given.get("lang", "en")))
    rows.check(row)
    options = _options(given, model.n_trees)
    names = model.schema.names
    try:
        table = make_table(names, [objects([row[name]]) for name in names])
        found = explain(model, table, budget=_PAIRS, **options)
    except (DataError, SettingError) as error:
        raise InvalidRequestError(f"model {served.name!r}: {error}") from error
    return msgspec.json.encode(
        {
            "model": served.name,
            "version": served.version,
            "explanation": found.plain(),
            "text": list(found.lines(words)),
        }
    )


def language_of(code: str) -> str:
    """Check the code of a language included in treekit; file names are not accepted."""
    if code in known_languages():
        return code
    raise InvalidRequestError(f"unknown language {quoted(code)}; {near(code, known_languages())}")


def _options(given: dict[str, Any], n_trees: int) -> dict[str, Any]:
    """Return the arguments of `treekit.explain.explain`."""
    options: dict[str, Any] = {"changes": given.get("changes", 1), "fixed": given.get("fixed", ())}
    for name in options["fixed"]:
        if type(name) is not str or len(name) > _LONG_TEXT:
            raise InvalidRequestError(
                f"'fixed' must be a list of column names, got {quoted(name)} in it"
            )
    if "tree" in given:
        if not 1 <= given["tree"] <= n_trees:
            raise InvalidRequestError(f"'tree' must be 1 to {n_trees}, got {quoted(given['tree'])}")
        options["tree"] = given["tree"] - 1
    if options["changes"] not in (0, 1, 2):
        raise InvalidRequestError(f"'changes' must be 0, 1 or 2, got {quoted(options['changes'])}")
    if "wish" in given:
        options["wish"] = level_text(given["wish"])
    if "target" in given:
        options["target"] = given["target"]
    for name in ("wish", "target"):
        if len(options.get(name) or "") > _LONG_TEXT:
            raise InvalidRequestError(f"{name!r} has more than {_LONG_TEXT:,} characters")
    return options


# ---------------------------------------------------------------- models


def models_said(repository: Repository, facts: dict[Served, dict[str, Any]]) -> list[Any]:
    """Return the state and the description of the newest loaded version of all known models.

    Parameters
    ----------
    repository : Repository
    facts : dict
        Result of `described` for each loaded model.
    """
    entries: dict[str, list[Entry]] = {}
    for entry in repository.index():
        entries.setdefault(entry.name, []).append(entry)
    newest = {served.name: served for served in reversed([*facts])}
    models = []
    for name, own in entries.items():
        served = newest.get(name)
        versions = [one.version for one in facts if one.name == name]
        one: dict[str, Any] = {
            "name": name,
            "version": versions[0] if versions else "",
            "versions": versions,
            "state": "READY" if versions else "UNAVAILABLE",
            "reason": next((entry.reason for entry in own if entry.reason), ""),
        }
        models.append(one | facts[served] if served else one)
    return models


def described(served: Served) -> dict[str, Any]:
    """Return the constant description of a loaded model, in time linear in its nodes."""
    if served.model is None:
        return {
            "platform": served.platform,
            "inputs": [spec._asdict() for spec in served.inputs],
            "outputs": [spec._asdict() for spec in served.outputs],
        }
    model = served.model
    schema = model.schema
    return {
        "platform": served.platform,
        "task": schema.task,
        "targets": [
            {"name": output.name, "classes": list(map(level_text, output.classes))}
            for output in schema.outputs
        ],
        "columns": _columns(model),
        "dtype": schema.dtype,
        "missing": model.missing,
        "unknown": model.unknown,
        "marks": list(schema.missing_marks),
        "trees": model.n_trees,
        "leaves": model.n_leaves,
        "depth": model.depth,
    }


def _columns(model: Model) -> list[dict[str, Any]]:
    """Describe the columns with their smallest and largest thresholds."""
    from treekit.explain.decision_path import thresholds_of

    columns = []
    for column, own in zip(
        model.schema.columns, thresholds_of(model.trees, model.schema), strict=True
    ):
        low, high = (float(own[0]), float(own[-1])) if len(own) else (None, None)
        columns.append(
            {
                "name": column.name,
                "kind": column.kind,
                "levels": list(column.levels),
                "low": low,
                "high": high,
            }
        )
    return columns


# ---------------------------------------------------------------- rules

_BOOKS = 4
_MOST_CONDITIONS = 4 << 20
"""Maximum conditions of a model whose rules are listed: about 200 MB."""

_BLOCK = 2048
"""Number of rules formatted together for a search."""

_KEPT = 32 << 20
"""Maximum characters cached for searches; further rules are formatted for each search."""


class Asked(NamedTuple):
    """Selection of rules: `tree` from 1, or 0 for all; `most` rules starting with `first`."""

    lang: str = "en"
    search: str = ""
    first: int = 0
    most: int = 50
    tree: int = 0


class Books:
    """Cache of the rules of the most recently requested models."""

    def __init__(self, most: int = _BOOKS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._books: OrderedDict[str, _Book] = OrderedDict()

    def page(self, served: Served, asked: Asked) -> dict[str, Any]:
        """Return selected rules of a model; to be called in a thread.

        Raises
        ------
        NotFoundError
            If the model does not have the tree.
        InvalidRequestError
            If the model is not a treekit model.
        TooLargeError
            If the model has too many rules.
        """
        model = served.model
        if model is None:
            raise InvalidRequestError(
                f"model {served.name!r} is an ONNX file, whose rules are not available"
            )
        if asked.tree > model.n_trees:
            raise NotFoundError(
                f"model {served.name!r} has no tree {asked.tree}; its trees are 1 to "
                f"{model.n_trees}"
            )
        if model.n_leaves * max(model.depth, 1) > _MOST_CONDITIONS:
            raise TooLargeError(
                f"model {served.name!r} has {model.n_leaves:,} leaves, too many for this server "
                "to list; write its rules with `treekit rules`"
            )
        found = self._book(served).page(asked)
        return {"model": served.name, "version": served.version, **found}

    def _book(self, served: Served) -> _Book:
        with self._lock:  # keyed by digest: no reference to a replaced model
            book = self._books.setdefault(served.digest, _Book(served))
            self._books.move_to_end(served.digest)
            while len(self._books) > self._most:
                self._books.popitem(last=False)
        return book


class _Book:
    """Rules of one model."""

    def __init__(self, served: Served) -> None:
        self._lock = threading.Lock()
        self._model = served.model
        self._rules: RuleList | None = None
        self._edition: dict[str, _Edition] = {}

    def page(self, asked: Asked) -> dict[str, Any]:
        with self._lock:
            if self._rules is None:
                assert self._model is not None  # noqa: S101 - for the type checker
                self._rules, self._model = joined_rules(self._model), None
            if asked.lang not in self._edition:
                self._edition[asked.lang] = _Edition(self._rules, asked.lang)
            return self._edition[asked.lang].page(asked)


class _Edition:
    """Rules of one model in one language."""

    def __init__(self, rules: RuleList, lang: str) -> None:
        self._rules, self._words = rules, language(lang)
        self._answers = AnswerTexts(rules, self._words)
        self._kept: dict[int, list[str]] = {}
        self._size = 0

    def page(self, asked: Asked) -> dict[str, Any]:
        rules = self._rules
        start, stop = 0, len(rules)
        if asked.tree:
            start, stop = np.searchsorted(rules.tree, [asked.tree - 1, asked.tree]).tolist()
        needle = asked.search.casefold()
        places = np.arange(start, stop)
        if needle:
            places = np.fromiter(self._found(needle, start, stop), np.int64)
        shown = places[asked.first : asked.first + asked.most]
        return {"total": len(rules), "found": len(places), "rules": self._said(shown)}

    def _found(self, needle: str, start: int, stop: int) -> Iterator[int]:
        """Yield the rules from `start` to `stop` whose conditions or outcomes contain a text."""
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            for rule, text in enumerate(self._searched(block), block * _BLOCK):
                if needle in text and start <= rule < stop:
                    yield rule

    def _searched(self, block: int) -> list[str]:
        if block in self._kept:
            return self._kept[block]
        first = block * _BLOCK
        last = min(first + _BLOCK, len(self._rules))
        which = np.arange(first, last)
        conditions = joinable_texts(self._rules, which, self._words)
        answers = self._says(first, last)
        # Separated by a line break, so that no match spans conditions and outcome.
        texts = [
            f"{''.join(own)}\n{outcome}".casefold()
            for own, (outcome, _) in zip(conditions, answers, strict=True)
        ]
        size = sum(map(len, texts))
        if self._size + size <= _KEPT:
            self._kept[block] = texts
            self._size += size
        return texts

    def _says(self, first: int, last: int) -> list[tuple[str, str]]:
        """Return outcome and shares of all targets for each rule."""
        rules = self._rules
        blocks = rules.schema.blocks
        columns = [self._answers.said(a, b, first, last) for a, b in itertools.pairwise(blocks)]
        if not rules.schema.more:
            return columns[0]
        names = [name_text(output.name, self._words) for output in rules.schema.outputs]
        return [
            (
                "; ".join(f"{n}: {outcome}" for n, (outcome, _) in zip(names, own, strict=True)),
                "; ".join(
                    f"{n}: {share}" for n, (_, share) in zip(names, own, strict=True) if share
                ),
            )
            for own in zip(*columns, strict=True)
        ]

    def _said(self, which: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        rules = self._rules
        weights = numerals(rules.support[which])
        conditions = joinable_texts(rules, which, self._words)
        found = []
        for place, (rule, own) in enumerate(zip(which.tolist(), conditions, strict=True)):
            ((answer, shares),) = self._says(rule, rule + 1)
            found.append(
                {
                    "number": rule + 1,
                    "tree": int(rules.tree[rule]) + 1,
                    "conditions": own[::2],
                    "text": "".join(own),
                    "says": answer,
                    "shares": shares,
                    "weight": float(weights[place]),
                }
            )
        return found
