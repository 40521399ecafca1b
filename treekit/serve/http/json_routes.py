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

from treekit import registry
from treekit.data.cells import make_object_array
from treekit.data.schema import level_text
from treekit.data.table import make_table
from treekit.errors import DataError, SettingError
from treekit.rules.extract import is_rule_list, list_condition_parts
from treekit.rules.language import list_languages, load_language
from treekit.rules.merge import joined_rules
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import format_numbers, quote_name
from treekit.rules.write_text import AnswerWriter
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import (
    Receive,
    Reply,
    Route,
    Scope,
    make_json_reply,
    read_body,
    record_prediction,
)
from treekit.serve.http.json_rows import (
    RowConverter,
    check_object,
    check_rows,
    parse_integer,
    parse_json,
    parse_query,
    quote_value,
    suggest_short_names,
)
from treekit.serve.models.repository import Entry, Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.scheduling import Service

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- routes

_MAX_EXTRA_BRACES = 1000
"""Opening braces allowed in a body in addition to those of rows: in strings, such as names."""

_MAX_NAME = 255
_MAX_SEARCH = 200
_MAX_PAGE_RULES = 500
_MAX_INTEGER = 999_999_999

_PREDICT_FIELDS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "version": (str,),
    "rows": (list,),
    "outputs": (list,),
}


class _ModelConverters(NamedTuple):
    """Converters of a treekit model, created at its first request."""

    row_converter: RowConverter
    output_converter: OutputConverter


class _PredictRequest(NamedTuple):
    """Parsed request for predictions."""

    served: Served
    batch: Batch
    outputs: tuple[str, ...]


class _JsonEndpoints:
    """JSON endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._converters: WeakKeyDictionary[Served, _ModelConverters] = WeakKeyDictionary()
        self._descriptions: WeakKeyDictionary[Served, dict[str, Any]] = WeakKeyDictionary()
        self._rule_cache = RuleCache()

    # ------------------------------------------------------------- prediction

    async def predict(self, scope: Scope, receive: Receive) -> Reply:
        """Predict rows."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        if body.count(b"{") > 2 * runner.limits.rows + _MAX_EXTRA_BRACES:  # before slow parsing
            raise TooLargeError(
                f"the body contains more objects than the {runner.limits.rows:,} rows that this "
                "server takes at once: send them in parts"
            )
        query = scope["query_string"]
        request = await runner.run_by_size(len(body), self._parse_predict_request, query, body)
        outputs = await runner.run_batch(request.served, request.batch, request.outputs)
        record_prediction(scope, request.served, request.batch.rows)
        size = 8 * sum(output.cells.size for output in outputs)
        return Reply(
            await runner.run_by_size(size, self._encode_predictions, request.served, outputs)
        )

    def _parse_predict_request(self, query: bytes, body: bytes) -> _PredictRequest:
        value = parse_json(body)
        if type(value) is list:
            value = {"rows": value}
        elif type(value) is dict and _looks_like_row(value):
            raise InvalidRequestError(
                "the body seems to be a single row; give a list of rows, [{...}]"
            )
        given = check_object(value, _PREDICT_FIELDS, "the body")
        served = self._get_requested_model(query, given)
        if "rows" not in given:
            raise InvalidRequestError("the body has no 'rows'; write {\"rows\": [{...}]}")
        rows = check_rows(given["rows"])
        outputs: list[Any] | None = given.get("outputs")
        known = self._get_converters(served)
        wanted = known.output_converter.select_outputs(
            outputs, len(rows), self._service.limits.explained_rows
        )
        return _PredictRequest(served, known.row_converter.convert_rows(rows), wanted)

    def _encode_predictions(self, served: Served, outputs: Sequence[Tensor]) -> bytes:
        rows = self._get_converters(served).output_converter.make_rows(outputs)
        return msgspec.json.encode({"model": served.name, "version": served.version, "rows": rows})

    def _get_requested_model(self, query: bytes, given: dict[str, Any]) -> Served:
        """Return the model named in the body or the URL."""
        parameters = parse_query(query, ("model", "version"))
        for name, value in parameters.items():
            if given.setdefault(name, value) != value:
                raise InvalidRequestError(
                    f"the URL has {name} {quote_value(value)}, but the body has "
                    f"{quote_value(given[name])}"
                )
        return self._get_model(given.get("model"), given.get("version"))

    def _get_model(self, name: str | None, version: str | None) -> Served:
        for text in (name, version):
            if text is not None and len(text) > _MAX_NAME:
                raise NotFoundError(f"unknown model or version {quote_value(text)}")
        return self._service.repository.get(name, version)

    def _get_converters(self, served: Served) -> _ModelConverters:
        known = self._converters.get(served)
        if known is None:
            known = _ModelConverters(
                RowConverter(served.require_model(), served.name),
                OutputConverter(served.require_model()),
            )
            self._converters[served] = known
        return known

    # ------------------------------------------------------------ explanation

    async def explain(self, scope: Scope, receive: Receive) -> Reply:
        """Explain the prediction of one row."""
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return Reply(await runner.run_explanation(self._explain_row, scope, body))

    def _explain_row(self, scope: Scope, body: bytes) -> bytes:
        given = parse_explain_request(body)
        served = self._get_requested_model(scope["query_string"], given)
        record_prediction(scope, served, 1)
        return explain_row(
            served, served.require_model(), self._get_converters(served).row_converter, given
        )

    # ------------------------------------------------------ models and rules

    async def get_models(self, scope: Scope, receive: Receive) -> Reply:
        """Describe the models."""
        del receive
        parse_query(scope["query_string"], ())
        return Reply(await self._service.runner.run_explanation(self._encode_models))

    def _encode_models(self) -> bytes:
        repository = self._service.repository
        facts = {}
        for served in list(repository.served):
            own = self._descriptions.get(served)
            facts[served] = self._descriptions[served] = (
                describe_model(served) if own is None else own
            )
        return msgspec.json.encode(list_models(repository, facts))

    async def get_rules(self, scope: Scope, receive: Receive) -> Reply:
        """List rules of a model."""
        del receive
        query = parse_query(
            scope["query_string"], ("version", "lang", "search", "first", "count", "tree")
        )
        served = self._get_model(scope["path_params"]["name"], query.get("version"))
        search = query.get("search", "")
        if len(search) > _MAX_SEARCH:
            raise InvalidRequestError(f"'search' has more than {_MAX_SEARCH} characters")
        rule_query = RuleQuery(
            check_language(query.get("lang", "en")),
            search,
            parse_integer("first", query.get("first", "0"), 0, _MAX_INTEGER),
            parse_integer("count", query.get("count", "50"), 1, _MAX_PAGE_RULES),
            parse_integer("tree", query["tree"], 1, _MAX_INTEGER) if "tree" in query else 0,
        )
        return make_json_reply(
            await self._service.runner.run_explanation(
                self._rule_cache.get_page, served, rule_query
            )
        )


def _check_output_name(value: Any) -> str:
    if type(value) is str:
        return value
    raise InvalidRequestError(
        f"'outputs' must be a list of strings, got {quote_value(value)} in it"
    )


def list_json_routes(service: Service) -> list[Route]:
    """Return the routes of the JSON endpoints."""
    plain = _JsonEndpoints(service)
    return [
        Route("POST", "/predict", plain.predict, "predict"),
        Route("POST", "/explain", plain.explain, "explain"),
        Route("GET", "/models", plain.get_models, "models"),
        Route("GET", "/models/{name}/rules", plain.get_rules, "rules"),
    ]


def _looks_like_row(body: dict[str, Any]) -> bool:
    """Return whether an object looks like a row without a list: only cells, no request keys."""
    plain = not any(type(value) in (list, dict) for value in body.values())
    return bool(body) and plain and not body.keys() & _PREDICT_FIELDS.keys()


# ---------------------------------------------------------------- predictions
# Outputs of a model as JSON objects, one per row, with names of classes and targets.

Cells = npt.NDArray[Any]

_EXPLANATION_OUTPUTS = ("leaf", "rule", "contributions", "bias")


class OutputConverter:
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
        self._one_tree, self._listed = model.n_trees == 1, is_rule_list(model)
        self._usual = ("label", "probabilities") if self._votes else ("value",)
        self.returns_rule = self._one_tree or self._listed

    def select_outputs(
        self, names: Sequence[Any] | None, n_rows: int, most: int
    ) -> tuple[str, ...]:
        """Return the model outputs for those selected in a request, or the default ones.

        For single trees and rule lists the default includes the rule, if the request has at
        most `most` rows, the limit for explanations.

        Raises
        ------
        InvalidRequestError
            If an output is unknown or a duplicate.
        """
        if names is None:
            rule = ("rule",) if self.returns_rule and n_rows <= most else ()
            return (*self._list_output_names(self._usual), *rule)
        known = (*self._usual, *_EXPLANATION_OUTPUTS)
        for name in names:
            if name not in known:
                hint = (
                    suggest_short_names(name, known)
                    if isinstance(name, str)
                    else f"known: {', '.join(known)}"
                )
                raise InvalidRequestError(f"unknown output {quote_value(name)}; {hint}")
        if len(set(names)) < len(names) or not names:
            raise InvalidRequestError("'outputs' must name one output or more, each only once")
        return self._list_output_names(names)

    def _list_output_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the model's outputs, with one label per target."""
        found: list[str] = []
        for name in names:
            if self._several and name in ("label", "probabilities"):
                found += [f"{name}_{k}" for k in range(len(self._outputs))]
            else:
                found.append(name)
        return tuple(found)

    def make_rows(self, outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
        """Return an object for each row."""
        given = {output.name: output.cells for output in outputs}
        if not self._several:
            rows = self._make_target_rows(0, given, "")
        else:
            parts = [self._make_target_rows(k, given, f"_{k}") for k in range(len(self._outputs))]
            names = [output.name for output in self._outputs]
            rows = [
                {"targets": dict(zip(names, own, strict=True))} for own in zip(*parts, strict=True)
            ]
        if "leaf" in given:
            for row, leaves in zip(rows, given["leaf"].tolist(), strict=True):
                row["leaf"] = leaves
        if "rule" in given:
            for row, texts in zip(rows, given["rule"].tolist(), strict=True):
                row.update(self._make_rule(texts))
        return rows

    def _make_rule(self, texts: list[str]) -> dict[str, Any]:
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

    def _make_target_rows(
        self, k: int, given: Mapping[str, Cells], end: str
    ) -> list[dict[str, Any]]:
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
                added = map(self._label_values, itertools.repeat(k), columns)
                row["contributions"] = dict(zip(self._names, added, strict=True))
        if "bias" in given:
            for row, own in zip(rows, given["bias"][:, first:last].tolist(), strict=True):
                row["bias"] = self._label_values(k, own)
        return rows

    def _label_values(self, k: int, values: list[float]) -> Any:
        """Return the number of a numeric target, or a number for each class."""
        return dict(zip(self._classes[k], values, strict=True)) if self._votes else values[0]


# ---------------------------------------------------------------- explanations
# Requests about one row, and the explanation of `treekit explain` as JSON.

_MAX_TEXT = 10_000

_MAX_EXPLAIN_BYTES = 1 << 19
"""Maximum bytes of a request, as each cell occurs several times in the explanation."""

_MAX_PAIRS = 5_000_000
"""Maximum cells examined when searching for counterfactuals of two columns: below 1 s."""

_EXPLAIN_FIELDS: dict[str, tuple[type, ...]] = {
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


def parse_explain_request(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a request for an explanation and check the types of its fields.

    Raises
    ------
    InvalidRequestError
        If a field is invalid or missing; the message names it.
    TooLargeError
        If the row is too large to explain.
    """
    if len(body) > _MAX_EXPLAIN_BYTES:
        raise TooLargeError(
            f"the body is longer than the {_MAX_EXPLAIN_BYTES:,} bytes of a row that can be "
            "explained"
        )
    given = check_object(parse_json(body), _EXPLAIN_FIELDS, "the body")
    if "row" not in given:
        raise InvalidRequestError("the body has no 'row'; write {\"row\": {...}}")
    return given


def explain_row(served: Served, model: Model, rows: RowConverter, given: dict[str, Any]) -> bytes:
    """Explain a row as JSON; to be called in a thread.

    Raises
    ------
    InvalidRequestError
        If the row is invalid, or a tree, wish, target, column or language is unknown.
    """
    from treekit.explain import explain

    row, words = given["row"], load_language(check_language(given.get("lang", "en")))
    rows.check_row(row)
    options = _parse_explain_options(given, model.n_trees)
    names = model.schema.names
    try:
        table = make_table(names, [make_object_array([row[name]]) for name in names])
        found = explain(model, table, **options)
    except (DataError, SettingError) as error:
        raise InvalidRequestError(f"model {served.name!r}: {error}") from error
    return msgspec.json.encode(
        {
            "model": served.name,
            "version": served.version,
            "explanation": found.plain(),
            "text": list(found.lines(words)),
            "explainers": list(registry.explainers()),
        }
    )


def check_language(code: str) -> str:
    """Check the code of a language included in treekit; file names are not accepted."""
    if code in list_languages():
        return code
    raise InvalidRequestError(
        f"unknown language {quote_value(code)}; {suggest_short_names(code, list_languages())}"
    )


def _parse_explain_options(given: dict[str, Any], n_trees: int) -> dict[str, Any]:
    """Return the arguments of `treekit.explain.explain`."""
    options: dict[str, Any] = {"fixed": given.get("fixed", ())}
    if "counterfactuals" in registry.explainers():
        options |= {"changes": 1, "budget": _MAX_PAIRS}
    if "changes" in given:
        options["changes"] = given["changes"]
    for name in options["fixed"]:
        if type(name) is not str or len(name) > _MAX_TEXT:
            raise InvalidRequestError(
                f"'fixed' must be a list of column names, got {quote_value(name)} in it"
            )
    if "tree" in given:
        if not 1 <= given["tree"] <= n_trees:
            raise InvalidRequestError(
                f"'tree' must be 1 to {n_trees}, got {quote_value(given['tree'])}"
            )
        options["tree"] = given["tree"] - 1
    if options.get("changes", 0) not in (0, 1, 2):
        raise InvalidRequestError(
            f"'changes' must be 0, 1 or 2, got {quote_value(options['changes'])}"
        )
    if "wish" in given:
        options["wish"] = level_text(given["wish"])
    if "target" in given:
        options["target"] = given["target"]
    for name in ("wish", "target"):
        if len(options.get(name) or "") > _MAX_TEXT:
            raise InvalidRequestError(f"{name!r} has more than {_MAX_TEXT:,} characters")
    return options


# ---------------------------------------------------------------- models


def list_models(repository: Repository, facts: dict[Served, dict[str, Any]]) -> list[Any]:
    """Return the state and the description of the newest loaded version of all known models.

    Parameters
    ----------
    repository : Repository
    facts : dict
        Result of `describe_model` for each loaded model.
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


def describe_model(served: Served) -> dict[str, Any]:
    """Return the constant description of a loaded model, in time linear in its nodes."""
    model = served.require_model()
    schema = model.schema
    return {
        "platform": served.platform,
        "task": schema.task,
        "targets": [
            {"name": output.name, "classes": list(map(level_text, output.classes))}
            for output in schema.outputs
        ],
        "columns": _describe_columns(model),
        "dtype": schema.dtype,
        "missing": model.missing,
        "unknown": model.unknown,
        "marks": list(schema.missing_marks),
        "trees": model.n_trees,
        "leaves": model.n_leaves,
        "depth": model.depth,
    }


def _describe_columns(model: Model) -> list[dict[str, Any]]:
    """Describe the columns with their smallest and largest thresholds."""
    from treekit.model.split_tests import list_thresholds

    columns = []
    for column, own in zip(
        model.schema.columns, list_thresholds(model.trees, model.schema), strict=True
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

_MAX_CACHED_MODELS = 4
_MAX_CONDITIONS = 4 << 20
"""Maximum conditions of a model whose rules are listed: about 200 MB."""

_BLOCK_RULES = 2048
"""Number of rules formatted together for a search."""

_MAX_CACHED_CHARS = 32 << 20
"""Maximum characters cached for searches; further rules are formatted for each search."""


class RuleQuery(NamedTuple):
    """Selection of rules: `tree` from 1, or 0 for all; `max_rules` rules starting with `first`."""

    lang: str = "en"
    search: str = ""
    first: int = 0
    max_rules: int = 50
    tree: int = 0


class RuleCache:
    """Cache of the rules of the most recently requested models."""

    def __init__(self, most: int = _MAX_CACHED_MODELS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._cached_models: OrderedDict[str, _CachedRules] = OrderedDict()

    def get_page(self, served: Served, query: RuleQuery) -> dict[str, Any]:
        """Return selected rules of a model; to be called in a thread.

        Raises
        ------
        NotFoundError
            If the model does not have the tree.
        TooLargeError
            If the model has too many rules.
        """
        model = served.require_model()
        if query.tree > model.n_trees:
            raise NotFoundError(
                f"model {served.name!r} has no tree {query.tree}; its trees are 1 to "
                f"{model.n_trees}"
            )
        if model.n_leaves * max(model.depth, 1) > _MAX_CONDITIONS:
            raise TooLargeError(
                f"model {served.name!r} has {model.n_leaves:,} leaves, too many for this server "
                "to list; write its rules with `treekit rules`"
            )
        found = self._get_model_rules(served).get_page(query)
        return {"model": served.name, "version": served.version, **found}

    def _get_model_rules(self, served: Served) -> _CachedRules:
        with self._lock:  # keyed by digest: no reference to a replaced model
            book = self._cached_models.setdefault(served.digest, _CachedRules(served))
            self._cached_models.move_to_end(served.digest)
            while len(self._cached_models) > self._most:
                self._cached_models.popitem(last=False)
        return book


class _CachedRules:
    """Rules of one model."""

    def __init__(self, served: Served) -> None:
        self._lock = threading.Lock()
        self._model: Model | None = served.model
        self._rules: RuleList | None = None
        self._by_language: dict[str, _TranslatedRules] = {}

    def get_page(self, query: RuleQuery) -> dict[str, Any]:
        with self._lock:
            if self._rules is None:
                assert self._model is not None  # noqa: S101 - for the type checker
                self._rules, self._model = joined_rules(self._model), None
            if query.lang not in self._by_language:
                self._by_language[query.lang] = _TranslatedRules(self._rules, query.lang)
            return self._by_language[query.lang].get_page(query)


class _TranslatedRules:
    """Rules of one model in one language."""

    def __init__(self, rules: RuleList, lang: str) -> None:
        self._rules, self._words = rules, load_language(lang)
        self._outcome_texts = AnswerWriter(rules, self._words)
        self._cached_texts: dict[int, list[str]] = {}
        self._size = 0

    def get_page(self, query: RuleQuery) -> dict[str, Any]:
        rules = self._rules
        start, stop = 0, len(rules)
        if query.tree:
            start, stop = np.searchsorted(rules.tree, [query.tree - 1, query.tree]).tolist()
        needle = query.search.casefold()
        places = np.arange(start, stop)
        if needle:
            places = np.fromiter(self._search_rules(needle, start, stop), np.int64)
        shown = places[query.first : query.first + query.max_rules]
        return {"total": len(rules), "found": len(places), "rules": self._format_rules(shown)}

    def _search_rules(self, needle: str, start: int, stop: int) -> Iterator[int]:
        """Yield the rules from `start` to `stop` whose conditions or outcomes contain a text."""
        for block in range(start // _BLOCK_RULES, -(-stop // _BLOCK_RULES)):
            for rule, text in enumerate(self._get_search_texts(block), block * _BLOCK_RULES):
                if needle in text and start <= rule < stop:
                    yield rule

    def _get_search_texts(self, block: int) -> list[str]:
        if block in self._cached_texts:
            return self._cached_texts[block]
        first = block * _BLOCK_RULES
        last = min(first + _BLOCK_RULES, len(self._rules))
        which = np.arange(first, last)
        conditions = list_condition_parts(self._rules, which, self._words)
        answers = self._format_outcomes(first, last)
        # Separated by a line break, so that no match spans conditions and outcome.
        texts = [
            f"{''.join(own)}\n{outcome}".casefold()
            for own, (outcome, _) in zip(conditions, answers, strict=True)
        ]
        size = sum(map(len, texts))
        if self._size + size <= _MAX_CACHED_CHARS:
            self._cached_texts[block] = texts
            self._size += size
        return texts

    def _format_outcomes(self, first: int, last: int) -> list[tuple[str, str]]:
        """Return outcome and shares of all targets for each rule."""
        rules = self._rules
        blocks = rules.schema.blocks
        columns = [
            self._outcome_texts.format_answers(a, b, first, last)
            for a, b in itertools.pairwise(blocks)
        ]
        if not rules.schema.more:
            return columns[0]
        names = [quote_name(output.name, self._words) for output in rules.schema.outputs]
        return [
            (
                "; ".join(f"{n}: {outcome}" for n, (outcome, _) in zip(names, own, strict=True)),
                "; ".join(
                    f"{n}: {share}" for n, (_, share) in zip(names, own, strict=True) if share
                ),
            )
            for own in zip(*columns, strict=True)
        ]

    def _format_rules(self, which: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        rules = self._rules
        weights = format_numbers(rules.support[which])
        conditions = list_condition_parts(rules, which, self._words)
        found = []
        for place, (rule, own) in enumerate(zip(which.tolist(), conditions, strict=True)):
            ((answer, shares),) = self._format_outcomes(rule, rule + 1)
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
