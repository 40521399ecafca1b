"""Laws of documents, simplifiers and explainers, tested on example models."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from treekit.contracts import Document, Explainer, Simplifier
from treekit.data import demo_table
from treekit.data.table import Table, make_object_array, make_table
from treekit.documents import make_listing, render_listing
from treekit.errors import DataError, PluginError, TreekitError
from treekit.explain import explain
from treekit.explain.explanation import ExplanationCase
from treekit.explain.text import ExplanationWords
from treekit.model.model import Model
from treekit.rule_learning.report import LearnedList
from treekit.rules.language import list_languages, load_language
from treekit.rules.rule_list import RuleList
from treekit.testing.example_models import (
    SampleModel,
    iter_hostile_alone,
    iter_samples,
    make_hostile,
    make_probe_rows,
)
from treekit.testing.laws import (
    LawTest,
    break_law,
    format_exception,
    judge_laws,
    open_component,
)
from treekit.testing.report import Law, Report
from treekit.verify.probe_values import decode_cells
from treekit.verify.report import hash_model


def check_document(
    document: str | Document,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a document form satisfies the laws of its contract; see `check_importer`."""
    return _check("document", document, settings, DOCUMENT_LAWS, strict=strict, fail=fail)


def check_simplifier(
    simplifier: str | Simplifier,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a simplifier satisfies the laws of its contract; see `check_importer`."""
    return _check("simplifier", simplifier, settings, SIMPLIFIER_LAWS, strict=strict, fail=fail)


def check_explainer(
    explainer: str | Explainer,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that an explainer satisfies the laws of its contract; see `check_importer`."""
    return _check("explainer", explainer, settings, EXPLAINER_LAWS, strict=strict, fail=fail)


@dataclass(frozen=True)
class _Subject:
    """A component with its settings."""

    record: Any
    settings: dict[str, Any]


def _check(
    kind: str,
    wanted: Any,
    settings: Mapping[str, Any] | None,
    laws: tuple[tuple[Law, LawTest], ...],
    *,
    strict: bool,
    fail: bool,
) -> Report:
    found = open_component(kind, wanted, settings, strict)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    subject = _Subject(found.record, found.settings)
    return judge_laws(found.report, subject, laws, found.record.exempt).settled(fail=fail)


def _call(what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Return the result of a call; None if an error of treekit refuses the input."""
    try:
        return function(*arguments, **settings)
    except PluginError as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        break_law(what, format_exception(cause), "a result, or an error of treekit")
    except TreekitError:
        return None
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        break_law(what, format_exception(error), "a result, or an error of treekit")


# ---------------------------------------------------------------- documents

WRITES = Law(
    "writes-or-refuses-by-name",
    "Rules are written as texts, or refused by an error of treekit.",
    "the exception: raise treekit.SettingError for rules that the form cannot represent",
)
SOME = Law(
    "writes-some-rules",
    "The rules of some example models are written.",
    "the reason why every model is refused",
)
SAME_TEXT = Law(
    "same-rules-same-text",
    "Writing the same rules twice gives the same text.",
    "the order of a set, random numbers, the time",
)
ESCAPED = Law(
    "names-are-escaped",
    "A control character in a name, such as an escape sequence, is not written as it is.",
    "names and categories: escape them as the form requires",
)


def _iter_models() -> Iterator[SampleModel]:
    yield from iter_samples()
    yield from make_hostile()


def _write(subject: _Subject, sample: SampleModel) -> str | None:
    """Return the text of a model's rules in English and Chinese; None if they are refused."""
    texts = []
    for code in list_languages():
        rows = None if subject.record.measured else _make_table(sample.model)
        listing = make_listing(
            sample.model, words=code, table=rows, measured=False, tree=_choose_tree(sample.model)
        )
        call = f"render(<the rules of {sample.what}, in {code}>)"
        pieces = _call(call, _render, subject, listing)
        if pieces is None:
            return None
        texts.append(pieces)
    return "".join(texts)


def _render(subject: _Subject, listing: Any) -> str:
    return "".join(render_listing(subject.record, listing, **subject.settings))


def _choose_tree(model: Model) -> int | None:
    return 0 if model.n_trees > 1 else None


def _make_table(model: Model) -> Table | None:
    """Return rows of a model, with targets; None if a name cannot be that of a column."""
    rows, refused = make_probe_rows(model)
    known = [decode_cells(model.schema, row) for row in rows[: len(rows) - refused][:20]]
    columns: list[list[Any]] = [list(column) for column in zip(*known, strict=True)]
    for output in model.schema.outputs:
        values = output.classes or (0.5, 1.5)
        columns.append([values[k % len(values)] for k in range(len(known))])
    names = [*model.schema.names, *(output.name for output in model.schema.outputs)]
    try:
        return make_table(names, map(make_object_array, columns))
    except DataError:
        return None


def _check_writes(subject: _Subject) -> None:
    for sample in _iter_models():
        _write(subject, sample)


def _check_some(subject: _Subject) -> None:
    if all(_write(subject, sample) is None for sample in iter_samples()):
        break_law("render(<the rules of each example model>)", "refused", "a text for some")


def _check_same_text(subject: _Subject) -> None:
    for sample in iter_samples():
        if _write(subject, sample) != _write(subject, sample):
            call = f"render(<the rules of {sample.what}>) twice"
            break_law(call, "two texts", "the same text")


def _check_escaped(subject: _Subject) -> None:
    for sample in (*make_hostile(), *iter_hostile_alone()):
        text = _write(subject, sample) or ""
        for char in text:
            if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\r\t":
                call = f"render(<the rules of {sample.what}>)"
                break_law(call, f"the character {char!r}", "an escape of it")


DOCUMENT_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (WRITES, _check_writes),
    (SOME, _check_some),
    (SAME_TEXT, _check_same_text),
    (ESCAPED, _check_escaped),
)


# ---------------------------------------------------------------- simplifiers

LEARNS = Law(
    "learns-a-rule-list",
    "The result is a LearnedList whose rules are a model of the same columns and outputs.",
    "the result of `simplify`, and `treekit.rule_learning.report.LearnedList`",
)
SAME_LIST = Law(
    "same-table-same-list",
    "Learning twice from the same model and table gives the same list.",
    "random numbers: make a generator of the setting `seed`",
)
OTHER_REFUSED = Law(
    "other-models-are-refused",
    "A model that the method does not support is refused by an error of treekit.",
    "the exception: raise treekit.ModelError for what the method does not support",
)


def _learn(subject: _Subject, model: Model, table: Any, what: str) -> LearnedList | None:
    call = f"simplify({what}, <its training table>, None)"
    found = _call(call, subject.record.simplify, model, table, None, **subject.settings)
    if found is None:
        return None
    if not isinstance(found, LearnedList) or not isinstance(found.rules, RuleList):
        break_law(call, f"a {type(found).__name__}", "a LearnedList", law=LEARNS.name)
    if (found.rules.schema.columns, found.rules.schema.outputs) != (
        model.schema.columns,
        model.schema.outputs,
    ):
        break_law(call, "rules of another schema", "the schema of the model", law=LEARNS.name)
    return found


def _train_forest(**settings: Any) -> Model:
    from treekit.training import train

    return train(demo_table(), "surgical_lesion", ensemble="forest", trees=8, seed=0, **settings)


def _check_learns(subject: _Subject) -> None:
    found = _learn(subject, _train_forest(), demo_table(), "<a forest>")
    if found is None:
        break_law("simplify(<a forest>, <its training table>, None)", "refused", "a LearnedList")
    model = _call("<the list>.rules.model()", found.rules.model)
    if model is None:
        break_law("<the list>.rules.model()", "refused", "a treekit.Model")


def _check_same_list(subject: _Subject) -> None:
    forest = _train_forest()
    lists = [_learn(subject, forest, demo_table(), "<a forest>") for _ in range(2)]
    digests = {hash_model(one.rules.model()) for one in lists if one is not None}
    if len(digests) > 1:
        break_law("simplify(<a forest>, ...) twice", "two lists", "the same list")


def _check_other_models(subject: _Subject) -> None:
    for sample in iter_samples():
        _learn(subject, sample.model, _make_table(sample.model), sample.what)


SIMPLIFIER_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (LEARNS, _check_learns),
    (SAME_LIST, _check_same_list),
    (OTHER_REFUSED, _check_other_models),
)


# ---------------------------------------------------------------- explainers

ADDS = Law(
    "adds-a-part-or-none",
    "`explain` returns None, or a part whose lines are texts and whose values are JSON.",
    "the part's `lines` and `plain`; JSON has no NaN and no infinity",
)
SAME_PART = Law(
    "same-case-same-part",
    "Explaining the same row twice gives the same part.",
    "random numbers, the order of a set",
)


def _explain(subject: _Subject, sample: SampleModel) -> Iterator[tuple[str, str | None]]:
    """Yield the call and the text of the part for some rows."""
    rows, refused = make_probe_rows(sample.model)
    for codes in rows[: len(rows) - refused][:6]:
        cells = decode_cells(sample.model.schema, codes)
        row = dict(zip(sample.model.schema.names, cells, strict=True))
        call = f"explain(<{sample.what}, row {row!r:.100}>)"
        cases: list[ExplanationCase] = []
        spy = Explainer("spy", lambda case, to=cases: to.append(case))
        explain(sample.model, row, explainers=[spy])
        part = _call(call, subject.record.explain, cases[0], **subject.settings)
        yield call, None if part is None else _format_part(call, part)


def _format_part(call: str, part: Any) -> str:
    try:
        text = json.dumps(part.plain(), allow_nan=False)
        for code in list_languages():
            words = ExplanationWords(load_language(code), "float32", set())
            for line, heading in part.lines(words):
                if not isinstance(line, str) or not isinstance(heading, bool):
                    break_law(f"{call}.lines(words)", f"({line!r:.40}, {heading!r})", "(str, bool)")
                text += f"\n{line}"
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        break_law(call, format_exception(error), "a part with `plain` and `lines`")
    return text


def _check_adds(subject: _Subject) -> None:
    for sample in iter_samples():
        for _ in _explain(subject, sample):
            pass


def _check_same_part(subject: _Subject) -> None:
    for sample in iter_samples():
        pairs = zip(_explain(subject, sample), _explain(subject, sample), strict=True)
        for (call, one), (_, other) in pairs:
            if one != other:
                break_law(f"{call} twice", "two parts", "the same part")


EXPLAINER_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (ADDS, _check_adds),
    (SAME_PART, _check_same_part),
)
