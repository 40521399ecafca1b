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
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Meta, UnsetType

from treekit import registry
from treekit.data.cells import make_object_array
from treekit.data.encoding import Absent
from treekit.data.schema import level_text
from treekit.data.table import make_table, suggest_names
from treekit.errors import DataError, SettingError
from treekit.model.model import Model
from treekit.rules.extract import is_rule_list, list_condition_parts
from treekit.rules.language import load_language
from treekit.rules.merge import joined_rules
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import OutcomeFormatter, format_numbers, join_outcomes
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError, shown
from treekit.serve.http import (
    Reply,
    Request,
    Route,
    make_json_reply,
    parse_query,
    read_body,
)
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.protocol.messages import JsonLimits, convert_request, parse_json
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- requests

T = TypeVar("T")

_MAX_TEXT = 10_000

Language = Literal["en", "zh"]
"""Languages included in treekit; file names are not accepted."""

Row = Annotated[
    dict[str, Any],
    Meta(
        description="A value for each column of the model; null or NaN if it is missing.",
        extra_json_schema={
            "minProperties": 1,
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        },
    ),
]
Rows = Annotated[list[Row], Meta(min_length=1)]
Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
Count = Annotated[int, Meta(ge=1, le=999_999_999)]


class ModelQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Model of a request, by name (None: the only one) and version (None: the newest).

    `absent`: columns that a tree tests but a row does not have are an error (default) or missing.
    """

    model: str | None = None
    version: str | None = None
    absent: Absent | None = None


class PredictRequest(ModelQuery, kw_only=True):
    """Request for predictions, or for the selected outputs."""

    rows: Rows
    outputs: Annotated[
        list[str] | None,
        Meta(
            description="label, probabilities, value, leaf, rule, contributions or bias.",
            extra_json_schema={"uniqueItems": True},
        ),
    ] = None


class ExplainRequest(ModelQuery, kw_only=True):
    """Request for an explanation; changes, wish and target need treekit-counterfactuals."""

    row: Row
    lang: Language | None = None
    tree: Annotated[Count | None, Meta(description="Tree of the decision path, from 1.")] = None
    changes: Annotated[int, Meta(ge=0, le=2)] | None = None
    wish: Annotated[
        Text | int | float | bool | None, Meta(description="A label, or a range such as '>= 10'.")
    ] = None
    target: Text | None = None
    fixed: list[Text] | None = None


class RulesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Selection of rules of a model; `tree` is counted from 1."""

    version: str | None = None
    lang: Language = "en"
    search: Annotated[str, Meta(max_length=200)] = ""
    first: Annotated[int, Meta(ge=0, le=999_999_999)] = 0
    count: Annotated[int, Meta(ge=1, le=500)] = 50
    tree: Count | UnsetType = UNSET


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


# ---------------------------------------------------------------- responses


class TargetPrediction(msgspec.Struct):
    """Outputs of one target; contributions and bias have a number, or one for each class."""

    label: str | int | float | bool | UnsetType = UNSET
    probabilities: dict[str, float] | UnsetType = UNSET
    value: float | UnsetType | None = UNSET
    contributions: dict[str, Any] | UnsetType = UNSET
    bias: float | dict[str, float | None] | UnsetType | None = UNSET


class MatchingRule(msgspec.Struct):
    """Rule that a row matches in a tree, counted from 1."""

    tree: int
    rule: str


class PredictedRow(TargetPrediction):
    """Outputs of a row, by target if the model has several."""

    targets: dict[str, TargetPrediction] | UnsetType = UNSET
    leaf: list[int] | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    rules: list[MatchingRule] | UnsetType = UNSET


class PredictResponse(msgspec.Struct):
    """Predictions of all rows, and the model that made them."""

    model: str
    version: str
    rows: list[PredictedRow]


class ExplainResponse(msgspec.Struct):
    """Explanation of a row, and its lines of text, which are headings or not."""

    model: str
    version: str
    explanation: dict[str, Any]
    text: list[tuple[str, bool]]
    explainers: list[str]


class TargetDescription(msgspec.Struct):
    """Name and classes of a target."""

    name: str
    classes: list[str | None]


class ColumnDescription(msgspec.Struct):
    """A column, with its smallest and largest threshold."""

    name: str
    kind: str
    levels: tuple[str, ...]
    low: float | None
    high: float | None


class ModelDescription(msgspec.Struct, kw_only=True):
    """State of a model, and the description of its newest loaded version."""

    name: str
    version: str = ""
    versions: list[str] = []
    state: Literal["READY", "UNAVAILABLE"] = "UNAVAILABLE"
    reason: str = ""
    platform: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    targets: list[TargetDescription] | UnsetType = UNSET
    columns: list[ColumnDescription] | UnsetType = UNSET
    dtype: str | UnsetType = UNSET
    missing: str | UnsetType = UNSET
    unknown: str | UnsetType = UNSET
    marks: tuple[str, ...] | UnsetType = UNSET
    trees: int | UnsetType = UNSET
    leaves: int | UnsetType = UNSET
    depth: int | UnsetType = UNSET


class RuleDescription(msgspec.Struct):
    """A rule in a language."""

    number: int
    tree: int
    conditions: list[str]
    text: str
    says: str
    shares: str
    weight: float


class RulesResponse(msgspec.Struct):
    """Page of the rules of a model: all rules, those found, and those on the page."""

    model: str
    version: str
    total: int
    found: int
    rules: list[RuleDescription]


# ---------------------------------------------------------------- routes

_EXTRA_PARTS = 1000
"""Objects, members and lists allowed in a body in addition to those of its rows."""

_MAX_NAME = 255


class _JsonEndpoints:
    """JSON endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._converters: WeakKeyDictionary[Served, OutputConverter] = WeakKeyDictionary()
        self._rule_cache = RuleCache()

    # ------------------------------------------------------------- prediction

    async def predict(self, request: Request) -> Reply:
        """Predict rows."""
        runner = self._service.runner
        body = await read_body(request, runner.limits)
        served, matrix, wanted = await runner.run_by_size(
            len(body), self._parse_predict_request, request, body
        )
        outputs = await runner.run_batch(served, matrix, wanted)
        request.record_prediction(served, len(matrix))
        size = 8 * sum(output.cells.size for output in outputs)
        return Reply(await runner.run_by_size(size, self._encode_predictions, served, outputs))

    def _parse_predict_request(
        self, request: Request, body: bytes
    ) -> tuple[Served, npt.NDArray[Any], tuple[str, ...]]:
        """Return the model, the encoded rows and the names of the outputs of a request."""
        rows, repository = self._service.limits.rows, self._service.repository
        width = max((own.n_features for own in repository.served), default=0)
        members = rows * width + _EXTRA_PARTS if width else len(body)  # no model: the error says so
        JsonLimits(rows + _EXTRA_PARTS, members, _EXTRA_PARTS).check(body)
        given = convert_request(parse_json(body), PredictRequest | Rows)
        if not isinstance(given, PredictRequest):
            given = PredictRequest(rows=given)
        served, absent = self._get_requested_model(request, given)
        wanted = self._get_converter(served).select_outputs(
            given.outputs, len(given.rows), self._service.limits.explained_rows
        )
        return served, served.converter.convert_rows(given.rows, absent), wanted

    def _encode_predictions(self, served: Served, outputs: Sequence[Tensor]) -> bytes:
        rows = self._get_converter(served).make_rows(outputs)
        return msgspec.json.encode(PredictResponse(served.name, served.version, rows))

    def _get_requested_model(self, request: Request, given: ModelQuery) -> tuple[Served, Absent]:
        """Return the model, and the treatment of absent columns, in the body or the URL."""
        in_url = parse_query(request.scope["query_string"], ModelQuery)
        for name in ("model", "version", "absent"):
            own, other = getattr(given, name), getattr(in_url, name)
            if own is not None and other not in (None, own):
                raise InvalidRequestError(
                    f"the URL has {name} {shown(other)}, but the body has {shown(own)}; give one"
                )
        wanted = given.model or in_url.model, given.version or in_url.version
        served = request.served = self._get_model(*wanted)
        return served, given.absent or in_url.absent or "error"

    def _get_model(self, name: str | None, version: str | None) -> Served:
        for text in (name, version):
            if text is not None and len(text) > _MAX_NAME:
                raise NotFoundError(f"unknown model or version {shown(text)}")
        return self._service.repository.get(name, version)

    def _get_converter(self, served: Served) -> OutputConverter:
        """Return the converter of a model's responses, created on first use."""
        known = self._converters.get(served)
        if known is None:
            known = self._converters[served] = OutputConverter(served.model)
        return known

    # ------------------------------------------------------------ explanation

    async def explain(self, request: Request) -> Reply:
        """Explain the prediction of one row."""
        runner = self._service.runner
        body = await read_body(request, runner.limits)
        return make_json_reply(await runner.run_explanation(self._explain_row, request, body))

    def _explain_row(self, request: Request, body: bytes) -> ExplainResponse:
        if len(body) > _MAX_EXPLAIN_BYTES:
            raise TooLargeError(
                f"the body is longer than the {_MAX_EXPLAIN_BYTES:,} bytes of a row that can be "
                "explained"
            )
        given: ExplainRequest = convert_request(parse_json(body), ExplainRequest)
        served, absent = self._get_requested_model(request, given)
        request.record_prediction(served, 1)
        served.converter.check_row(given.row, absent)
        return explain_row(served, given, absent)

    # ------------------------------------------------------ models and rules

    async def get_models(self, request: Request) -> Reply:
        """Describe the models."""
        parse_query(request.scope["query_string"], NoQuery)
        service = self._service
        return make_json_reply(
            await service.runner.run_explanation(list_models, service.repository)
        )

    async def get_rules(self, request: Request) -> Reply:
        """List rules of a model."""
        query = parse_query(request.scope["query_string"], RulesQuery)
        served = self._get_model(request.parameters["name"], query.version)
        return make_json_reply(
            await self._service.runner.run_explanation(self._rule_cache.get_page, served, query)
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
        self, names: Sequence[str] | None, n_rows: int, most: int
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
                raise InvalidRequestError(
                    f"unknown output {shown(name)}; {suggest_names(name, known)}"
                )
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

    def make_rows(self, outputs: Sequence[Tensor]) -> list[PredictedRow]:
        """Return the outputs of each row."""
        given = {output.name: output.cells for output in outputs}
        n_rows = len(outputs[0].cells)
        if not self._several:
            columns = self._list_target_columns(0, given, "")
        else:
            names = [output.name for output in self._outputs]
            targets = []
            for k in range(len(names)):
                own = self._list_target_columns(k, given, f"_{k}")
                targets.append(_make_records(TargetPrediction, own, n_rows))
            rows = zip(*targets, strict=True)
            columns = {"targets": [dict(zip(names, row, strict=True)) for row in rows]}
        if "leaf" in given:
            columns["leaf"] = given["leaf"].tolist()
        if "rule" in given:
            texts = given["rule"].tolist()
            if self._one_tree:
                columns["rule"] = [own for (own,) in texts]
            else:
                columns["rules"] = list(map(self._make_rules, texts))
        return _make_records(PredictedRow, columns, n_rows)

    def _make_rules(self, texts: list[str]) -> list[MatchingRule]:
        """Return the rules of all trees, or the matching rules of a rule list."""
        return [
            MatchingRule(number, text)
            for number, text in enumerate(texts, 1)
            if not self._listed or text != "otherwise"
        ]

    def _list_target_columns(
        self, k: int, given: Mapping[str, Cells], end: str
    ) -> dict[str, list[Any]]:
        """Return the fields of `TargetPrediction` of one target, with a value for each row."""
        columns: dict[str, list[Any]] = {}
        label_values = partial(self._label_values, k)
        if f"label{end}" in given:
            columns["label"] = given[f"label{end}"].tolist()
        if f"probabilities{end}" in given:
            shares = given[f"probabilities{end}"].tolist()
            columns["probabilities"] = list(map(label_values, shares))
        if "value" in given:
            values = given["value"][:, k] if self._several else given["value"]
            columns["value"] = values.tolist()
        first, last = self._blocks[k]
        if "contributions" in given:
            rows = given["contributions"][:, :, first:last].tolist()
            columns["contributions"] = [
                dict(zip(self._names, map(label_values, row), strict=True)) for row in rows
            ]
        if "bias" in given:
            columns["bias"] = list(map(label_values, given["bias"][:, first:last].tolist()))
        return columns

    def _label_values(self, k: int, values: list[float]) -> Any:
        """Return the number of a numeric target, or a number for each class."""
        return dict(zip(self._classes[k], values, strict=True)) if self._votes else values[0]


def _make_records(kind: type[T], columns: Mapping[str, list[Any]], n_rows: int) -> list[T]:
    """Return a struct for each row, whose fields are the row's values in the columns."""
    return [
        kind(**{name: values[row] for name, values in columns.items()}) for row in range(n_rows)
    ]


# ---------------------------------------------------------------- explanations
# The explanation of `treekit explain` as JSON.

_MAX_EXPLAIN_BYTES = 1 << 19
"""Maximum bytes of a request, as each cell occurs several times in the explanation."""

_MAX_PAIRS = 5_000_000
"""Maximum cells examined when searching for counterfactuals of two columns: below 1 s."""


def explain_row(served: Served, given: ExplainRequest, absent: Absent = "error") -> ExplainResponse:
    """Explain a row; to be called in a thread.

    Raises
    ------
    InvalidRequestError
        If the row is invalid, or a tree, wish, target or column is unknown.
    """
    from treekit.explain import explain

    model, explainers = served.model, list(registry.list("explainer"))
    options: dict[str, Any] = {"fixed": given.fixed or (), "absent": absent}
    if given.tree is not None:
        if given.tree > model.n_trees:
            raise InvalidRequestError(f"'tree' must be 1 to {model.n_trees}, got {given.tree}")
        options["tree"] = given.tree - 1
    if "counterfactuals" in explainers:
        options |= {"changes": 1, "budget": _MAX_PAIRS}
    wish = None if given.wish is None else level_text(given.wish)
    wanted = {"changes": given.changes, "wish": wish, "target": given.target}
    options |= {name: value for name, value in wanted.items() if value is not None}
    names = [name for name in model.schema.names if name in given.row]
    columns = [make_object_array([given.row[name]]) for name in names]
    try:
        found = explain(model, make_table(names, columns) if names else {}, **options)
    except (DataError, SettingError) as error:
        raise InvalidRequestError(f"model {served.name!r}: {error}") from error
    text = list(found.lines(load_language(given.lang or "en")))
    return ExplainResponse(served.name, served.version, found.plain(), text, explainers)


# ---------------------------------------------------------------- models


def list_models(repository: Repository) -> list[ModelDescription]:
    """Return the state and the description of the newest loaded version of all known models."""
    models: dict[str, ModelDescription] = {}
    for entry in repository.index():
        model = models.setdefault(entry.name, ModelDescription(name=entry.name))
        model.reason = model.reason or entry.reason
    for served in repository.served:
        model = models.setdefault(served.name, ModelDescription(name=served.name))
        if not model.versions:
            model.version, model.state, model.platform = served.version, "READY", served.platform
            for name, value in describe_model(served.model).items():
                setattr(model, name, value)
        model.versions = [*model.versions, served.version]
    return list(models.values())


def describe_model(model: Model) -> dict[str, Any]:
    """Return the constant fields of `ModelDescription`, in time linear in the model's nodes."""
    from treekit.model.split_tests import list_thresholds

    schema = model.schema
    columns = []
    thresholds = list_thresholds(model.trees, schema)
    for column, own in zip(schema.columns, thresholds, strict=True):
        low, high = (float(own[0]), float(own[-1])) if len(own) else (None, None)
        columns.append(ColumnDescription(column.name, column.kind, column.levels, low, high))
    return {
        "task": schema.task,
        "targets": [
            TargetDescription(output.name, list(map(level_text, output.classes)))
            for output in schema.outputs
        ],
        "columns": columns,
        "dtype": schema.dtype,
        "missing": model.missing,
        "unknown": model.unknown,
        "marks": schema.missing_marks,
        "trees": model.n_trees,
        "leaves": model.n_leaves,
        "depth": model.depth,
    }


# ---------------------------------------------------------------- rules

_MAX_CACHED_MODELS = 4
_MAX_CONDITIONS = 4 << 20
"""Maximum conditions of a model whose rules are listed: about 200 MB."""

_BLOCK_RULES = 2048
"""Number of rules formatted together for a search."""

_MAX_CACHED_CHARS = 32 << 20
"""Maximum characters cached for searches; further rules are formatted for each search."""


class RuleCache:
    """Cache of the rules of the most recently requested models and languages."""

    def __init__(self, most: int = _MAX_CACHED_MODELS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._cached: OrderedDict[tuple[str, str], _TranslatedRules] = OrderedDict()

    def get_page(self, served: Served, query: RulesQuery) -> RulesResponse:
        """Return selected rules of a model; to be called in a thread.

        Raises
        ------
        NotFoundError
            If the model does not have the tree.
        TooLargeError
            If the model has too many rules.
        """
        model = served.model
        if query.tree is not UNSET and query.tree > model.n_trees:
            raise NotFoundError(
                f"model {served.name!r} has no tree {query.tree}; its trees are 1 to "
                f"{model.n_trees}"
            )
        if model.n_leaves * max(model.depth, 1) > _MAX_CONDITIONS:
            raise TooLargeError(
                f"model {served.name!r} has {model.n_leaves:,} leaves, too many for this server "
                "to list; write its rules with `treekit rules`"
            )
        key, known = (served.digest, query.lang), self._cached  # no reference to a replaced model
        with self._lock:
            if key not in known:
                same = (own.rules for (digest, _), own in known.items() if digest == served.digest)
                rules = next(same, None)
                rules = joined_rules(model) if rules is None else rules
                known[key] = _TranslatedRules(rules, query.lang)
            known.move_to_end(key)
            while len(known) > self._most:
                known.popitem(last=False)
            total, found, page = known[key].get_page(query)
        return RulesResponse(served.name, served.version, total, found, page)


class _TranslatedRules:
    """Rules of one model in one language."""

    def __init__(self, rules: RuleList, lang: str) -> None:
        self.rules, self._words = rules, load_language(lang)
        self._outcomes = OutcomeFormatter(rules, self._words)
        self._cached_texts: dict[int, list[str]] = {}
        self._size = 0

    def get_page(self, query: RulesQuery) -> tuple[int, int, list[RuleDescription]]:
        """Return the numbers of rules and of those found, and the rules on the page."""
        rules = self.rules
        start, stop = 0, len(rules)
        if query.tree is not UNSET:
            start, stop = np.searchsorted(rules.tree, [query.tree - 1, query.tree]).tolist()
        needle = query.search.casefold()
        places = np.arange(start, stop)
        if needle:
            places = np.fromiter(self._search_rules(needle, start, stop), np.int64)
        page = places[query.first : query.first + query.count]
        return len(rules), len(places), self._format_rules(page)

    def _search_rules(self, needle: str, start: int, stop: int) -> Iterator[int]:
        """Yield the rules from `start` to `stop` whose conditions or outcomes contain a text."""
        for block in range(start // _BLOCK_RULES, -(-stop // _BLOCK_RULES)):
            check_cancelled()
            for rule, text in enumerate(self._get_search_texts(block), block * _BLOCK_RULES):
                if needle in text and start <= rule < stop:
                    yield rule

    def _get_search_texts(self, block: int) -> list[str]:
        if block in self._cached_texts:
            return self._cached_texts[block]
        first = block * _BLOCK_RULES
        last = min(first + _BLOCK_RULES, len(self.rules))
        which = np.arange(first, last)
        conditions = list_condition_parts(self.rules, which, self._words)
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
        outcomes, found = self._outcomes, []
        for own in outcomes.format_outcomes(first, last):
            shares = [one._replace(text=outcomes.join_shares(one.shares)) for one in own]
            shown = [one for one in shares if outcomes.has_votes and one.text]
            found.append((join_outcomes(own, "; "), join_outcomes(shown, "; ")))
        return found

    def _format_rules(self, which: npt.NDArray[np.int64]) -> list[RuleDescription]:
        weights = format_numbers(self.rules.support[which])
        conditions = list_condition_parts(self.rules, which, self._words)
        found = []
        for rule, own, weight in zip(which.tolist(), conditions, weights, strict=True):
            ((answer, shares),) = self._format_outcomes(rule, rule + 1)
            tree, text = int(self.rules.tree[rule]) + 1, "".join(own)
            found.append(
                RuleDescription(rule + 1, tree, own[::2], text, answer, shares, float(weight))
            )
        return found
