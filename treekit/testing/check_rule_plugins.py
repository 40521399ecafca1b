"""Laws for plugins on rules (documents, simplifiers, explainers), tested on example models."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from treekit.contracts import Explainer
from treekit.data import demo_table
from treekit.data.cells import make_object_array
from treekit.data.table import Table, make_table
from treekit.documents import make_listing, render_listing
from treekit.errors import DataError, PluginError, TreekitError
from treekit.explain import explain
from treekit.explain.explanation import ExplanationCase
from treekit.explain.text import ExplanationWords
from treekit.model.model import Model, hash_model
from treekit.rule_learning import LearnedList
from treekit.rules.language import list_languages, load_language
from treekit.rules.rule_list import RuleList
from treekit.testing.example_models import (
    SampleModel,
    iter_hostile_alone,
    iter_samples,
    make_example_probes,
    make_hostile,
)
from treekit.testing.laws import Laws, Subject, blame_error, break_law
from treekit.testing.report import Law
from treekit.verify.probe_values import decode_cells


def _call(
    law: Law, what: str, function: Callable[..., Any], *arguments: Any, **settings: Any
) -> Any:
    """Return the result of a call; None if it raises an error of treekit.

    Any other error breaks `law`.
    """
    try:
        return function(*arguments, **settings)
    except PluginError as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        blame_error(what, cause, "a result, or an error of treekit", law)
    except TreekitError:
        return None
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        blame_error(what, error, "a result, or an error of treekit", law)


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


def _write(subject: Subject, sample: SampleModel) -> str | None:
    """Return the text of a model's rules in English and Chinese; None if they are refused."""
    model, text = sample.model, ""
    for code in list_languages():
        rows = None if subject.record.measured else _make_table(model)
        tree = 0 if model.n_trees > 1 else None
        listing = make_listing(model, words=code, table=rows, measured=False, tree=tree)

        def render(listing: Any = listing) -> str:
            return "".join(render_listing(subject.record, listing, **subject.settings))

        pieces = _call(WRITES, f"render(<the rules of {sample.what}, in {code}>)", render)
        if pieces is None:
            return None
        text += pieces
    return text


def _make_table(model: Model) -> Table | None:
    """Return a table of example rows with targets; None if the model has invalid column names."""
    # Twice, since a column of other categories in each row looks like an identifier.
    known = 2 * [decode_cells(model.schema, row) for row in make_example_probes(model).rows[:10]]
    columns: list[list[Any]] = [list(column) for column in zip(*known, strict=True)]
    for output in model.schema.outputs:
        values = output.classes or (0.5, 1.5)
        columns.append([values[k % len(values)] for k in range(len(known))])
    names = [*model.schema.names, *(output.name for output in model.schema.outputs)]
    try:
        return make_table(names, map(make_object_array, columns))
    except DataError:
        return None


def _check_some(subject: Subject) -> None:
    if all(_write(subject, sample) is None for sample in iter_samples()):
        break_law("render(<the rules of each example model>)", "refused", "a text for some")


def _check_same_text(subject: Subject) -> None:
    for sample in (*iter_samples(), *make_hostile()):
        if _write(subject, sample) != _write(subject, sample):
            call = f"render(<the rules of {sample.what}>) twice"
            break_law(call, "two texts", "the same text", law=SAME_TEXT)


def _check_escaped(subject: Subject) -> None:
    for sample in (*make_hostile(), *iter_hostile_alone()):
        text = _write(subject, sample) or ""
        for char in text:
            if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\r\t":
                call = f"render(<the rules of {sample.what}>)"
                break_law(call, f"the character {char!r}", "an escape of it")


DOCUMENT_LAWS: Laws = (
    (_check_same_text, WRITES),
    (_check_some, SOME),
    (_check_same_text, SAME_TEXT),
    (_check_escaped, ESCAPED),
)


# ---------------------------------------------------------------- simplifiers

LEARNS = Law(
    "learns-a-rule-list",
    "The result is a LearnedList whose rules are a model of the same columns and outputs.",
    "the result of `simplify`, and `treekit.rule_learning.LearnedList`",
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


def _learn(
    subject: Subject, model: Model, table: Any, what: str, law: Law = LEARNS
) -> LearnedList | None:
    call = f"simplify({what}, <its training table>, None)"
    found = _call(law, call, subject.record.simplify, model, table, None, **subject.settings)
    if found is None:
        return None
    if not isinstance(found, LearnedList) or not isinstance(found.rules, RuleList):
        break_law(call, f"a {type(found).__name__}", "a LearnedList", law=LEARNS)
    learned, schema = found.rules.schema, model.schema
    if (learned.columns, learned.outputs) != (schema.columns, schema.outputs):
        break_law(call, "rules of another schema", "the schema of the model", law=LEARNS)
    return found


def _train_forest(**settings: Any) -> Model:
    from treekit.training import train

    return train(demo_table(), "surgical_lesion", ensemble="forest", trees=8, seed=0, **settings)


def _check_learns(subject: Subject) -> None:
    found = _learn(subject, _train_forest(), demo_table(), "<a forest>")
    if found is None:
        break_law("simplify(<a forest>, <its training table>, None)", "refused", "a LearnedList")
    model = _call(LEARNS, "<the list>.rules.model()", found.rules.model)
    if model is None:
        break_law("<the list>.rules.model()", "refused", "a treekit.Model")


def _check_same_list(subject: Subject) -> None:
    forest = _train_forest()
    lists = [_learn(subject, forest, demo_table(), "<a forest>") for _ in range(2)]
    digests = {hash_model(one.rules.model()) for one in lists if one is not None}
    if len(digests) > 1:
        break_law("simplify(<a forest>, ...) twice", "two lists", "the same list")


def _check_other_models(subject: Subject) -> None:
    for sample in iter_samples():
        _learn(subject, sample.model, _make_table(sample.model), sample.what, OTHER_REFUSED)


SIMPLIFIER_LAWS: Laws = (
    (_check_learns, LEARNS),
    (_check_same_list, SAME_LIST),
    (_check_other_models, OTHER_REFUSED),
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


def _explain(subject: Subject, sample: SampleModel) -> Iterator[tuple[str, str | None]]:
    """Yield the call and the text of the part for some rows."""
    for codes in make_example_probes(sample.model).rows[:6]:
        cells = decode_cells(sample.model.schema, codes)
        row = dict(zip(sample.model.schema.names, cells, strict=True))
        call = f"explain(<{sample.what}, row {row!r:.100}>)"
        cases: list[ExplanationCase] = []
        spy = Explainer("spy", lambda case, to=cases: to.append(case))
        explain(sample.model, row, explainers=[spy])
        part = _call(ADDS, call, subject.record.explain, cases[0], **subject.settings)
        yield call, None if part is None else _format_part(call, part)


def _format_part(call: str, part: Any) -> str:
    try:
        text = json.dumps(part.plain(), allow_nan=False)
        for code in list_languages():
            words = ExplanationWords(load_language(code), "float32", set())
            for line, heading in part.lines(words):
                if not isinstance(line, str) or not isinstance(heading, bool):
                    break_law(
                        f"{call}.lines(words)",
                        f"({line!r:.40}, {heading!r})",
                        "(str, bool)",
                        law=ADDS,
                    )
                text += f"\n{line}"
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        blame_error(call, error, "a part with `plain` and `lines`", ADDS)
    return text


def _check_same_part(subject: Subject) -> None:
    for sample in iter_samples():
        pairs = zip(_explain(subject, sample), _explain(subject, sample), strict=True)
        for (call, one), (_, other) in pairs:
            if one != other:
                break_law(f"{call} twice", "two parts", "the same part", law=SAME_PART)


EXPLAINER_LAWS: Laws = ((_check_same_part, ADDS, SAME_PART),)
