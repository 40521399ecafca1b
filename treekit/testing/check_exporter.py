"""Laws of an exporter, tested on the files that it writes and by running them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.contracts import Exporter
from treekit.data.schema import Schema
from treekit.errors import ExportError, VerificationError
from treekit.export import is_place
from treekit.model.builder import Surrogate, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import Model
from treekit.model.model_file import load
from treekit.model.tree import FIELD_DTYPES
from treekit.testing.example_models import (
    COLUMNS,
    NUMBER,
    YES_NO,
    SampleModel,
    iter_hostile_alone,
    iter_samples,
    make_cut,
    make_deepest,
    make_example_model,
    make_hostile,
    make_probe_rows,
)
from treekit.testing.laws import (
    LawTest,
    break_law,
    format_exception,
    format_hint,
    judge_laws,
    open_component,
    skip_law,
)
from treekit.testing.report import Law, Report
from treekit.verify.answers import (
    REFUSED,
    Answers,
    describe_answer,
    differing,
    encode_labels,
    expected,
)
from treekit.verify.probe_values import decode_cells
from treekit.verify.run_artifact import list_runners

# ---------------------------------------------------------------- check


def check_exporter(
    exporter: str | Exporter,
    settings: Mapping[str, Any] | None = None,
    *,
    run: RunFunction | None = None,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that an exporter satisfies the laws of its contract, on models of every kind.

    Parameters
    ----------
    exporter : str or Exporter
        An installed name, or a record.
    settings : mapping, optional
        The exporter's own settings; the others take their defaults.
    run : callable, optional
        ``run(path, schema, rows)`` executes the main file at `path` and
        returns one prediction a row: ``(labels, numbers)``, or None where the row
        is refused.  `rows` are lists of cells in the order of
        ``schema.columns``: numbers, texts of categories, None for a missing
        value.  `labels` has one label for each of ``schema.outputs`` (none for
        a regression), `numbers` the probabilities of all their classes, or the
        predicted numbers, one output after the other.  Without it, only files
        that `treekit.verify` can run are run.
    strict : bool
        Treat a law that is declared broken, but holds, as a breach.
    fail : bool
        Raise for a breach; False: return the report in any case.

    Returns
    -------
    Report

    Raises
    ------
    ConformanceError
        An AssertionError, whose message shows every breach.
    SettingError
        For a name that is not installed, or an unknown setting.
    """
    found = open_component("exporter", exporter, settings, strict)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    record = found.record
    execute = get_builtin_run(record.suffix) if run is None else wrap_run(run)
    subject = ExporterSubject(record, found.settings, execute)
    return judge_laws(found.report, subject, EXPORTER_LAWS, record.exempt).settled(fail=fail)


# ---------------------------------------------------------------- laws

EXPORT_NAME = "model"
Files = Mapping[str, bytes]

WRITES_OR_REFUSES = Law(
    "writes-or-refuses-by-name",
    "A model is written, or rejected by a treekit.ExportError that names the unsupported part.",
    "the exception: raise ExportError for what the target cannot express",
)
FILES = Law(
    "main-file-first",
    "`export(model, name)` returns a mapping of file names to bytes, `name + suffix` first; "
    "if the suffix begins with a slash, of paths in the folder `name`.",
    "the result of `export`: `.encode()` texts, and put the main file first",
)
SOMETHING = Law(
    "writes-a-model",
    "Some models are written: a threshold, a leaf, a set of categories, a number.",
    "the reason why every model is rejected",
)
REPEATS = Law(
    "same-model-same-bytes",
    "Equal models give equal bytes, every time.",
    "the time, random names, `id()`, the order of a set, absolute paths",
)
UNTOUCHED = Law(
    "model-is-not-touched",
    "An export does not change the model.",
    "assignments to the model's arrays, settings and provenance: copy them first",
)
DEEP = Law(
    "deep-trees-are-written",
    "A tree of 5,000 nested splits is written, or rejected by an ExportError.",
    "recursion: `treekit.export.lowering` makes functions of subtrees; tables need none",
)
HOSTILE = Law(
    "names-are-only-data",
    "Names, categories and labels are written as inert text, or rejected by an ExportError.",
    "each place where a name is written: use `string_literal` of treekit.export.literals",
)
MISSING = Law(
    "missing-values-are-written",
    "Models that treat missing values differently are written differently, or rejected.",
    "`missing_yes` of a step, `model.missing`, surrogates: write them out, or raise ExportError",
)
UNSEEN = Law(
    "unseen-values-are-written",
    "Models that treat unseen categories differently are written differently, or rejected.",
    "`model.unknown`, and the categories that a step does not list",
)
DIFFERENCES = Law(
    "differences-are-written",
    "Models with different predictions are written differently, or rejected.",
    "numbers that are rounded (write `repr`), and parts of a model that are never read",
)
EQUAL_BITS = Law(
    "equal-bits",
    "The exported files give the model's prediction for every row, to the last bit.",
    "the row: the side of a missing value, `<=`, ties of labels, the one final division",
)


@dataclass(frozen=True)
class ExporterSubject:
    """An exporter with its settings, and the way to run its files.

    Attributes
    ----------
    record : Exporter
    settings : dict
    execute : callable or None
        See `treekit.testing.check_exporter`; None: they cannot be run.
    """

    record: Exporter
    settings: dict[str, Any]
    execute: ExecuteFunction | None = None

    def export_files(self, sample: SampleModel, law: Law = WRITES_OR_REFUSES) -> Files | None:
        """Return the checked files written for a model; None if it is rejected.

        `law` is broken by an exception other than a rejection.
        """
        call = f"export(<{sample.what}>, {EXPORT_NAME!r})"
        try:
            files = self.record.export(sample.model, EXPORT_NAME, **self.settings)
        except ExportError as refusal:
            if not str(refusal).strip():
                break_law(call, "an ExportError without a message", "the unsupported part by name",
                       law=WRITES_OR_REFUSES.name)  # fmt: skip
            return None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            break_law(call, format_exception(error), "files, or an ExportError", law=law.name,
                   look=format_hint(error, law))  # fmt: skip
        problem = self._describe_problem(files)
        if problem:
            break_law(
                call,
                problem,
                f"{{{EXPORT_NAME + self.record.suffix!r}: b'...', ...}}",
                law=FILES.name,
            )
        return dict(files)

    def _describe_problem(self, files: Any) -> str:
        """Describe a fault of the files of a model; empty if there is none."""
        if not isinstance(files, Mapping) or not files:
            return f"{files!r:.80}"
        folder = EXPORT_NAME if self.record.suffix.startswith("/") else ""
        for name, content in files.items():
            if not isinstance(name, str) or not is_place(name, folder):
                return f"a file {name!r}, which is not a plain name"
            if not isinstance(content, bytes):
                return f"{name!r} is of type {type(content).__name__}"
        first = next(iter(files))
        return "" if first == EXPORT_NAME + self.record.suffix else f"{first!r} first"


def _check_writes(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        subject.export_files(sample)


def _skip_checked_law(subject: ExporterSubject) -> None:
    """Do nothing: `Subject.export_files` tests this law whenever a model is written."""


def _check_something_written(subject: ExporterSubject) -> None:
    if all(subject.export_files(sample) is None for sample in iter_samples()):
        break_law("models of every kind", "all are rejected", "files of some of them")


def _check_repeated_exports(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        first = subject.export_files(sample)
        if first is None:
            continue
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            path = Path(folder) / "copy.treekit"
            sample.model.save(path)
            equal = SampleModel(sample.what, load(path))
        for what, model in (("a second time", sample), ("of an equal model", equal)):
            again = subject.export_files(model)
            if again != first:
                break_law(
                    f"export(<{sample.what}>) {what}",
                    _describe_difference(first, again or {}),
                    "equal bytes",
                )


def _describe_difference(first: Files, again: Files) -> str:
    """Describe the first difference of two exports of a model."""
    for name, content in first.items():
        other = again.get(name)
        if other is None:
            return f"no file {name!r}"
        if other != content:
            pairs = zip(content, other, strict=False)
            length = min(len(content), len(other))
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), length)
            start = max(at - 20, 0)
            return f"{other[start : at + 20]!r} for {content[start : at + 20]!r} in {name!r}"
    return f"different files: {', '.join(again)}"


def _check_untouched(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        before = _get_state(sample.model)
        subject.export_files(sample)
        for name, value in _get_state(sample.model).items():
            if value != before[name]:
                break_law(
                    f"export(<{sample.what}>)", f"its {name} was changed", f"its {name} unchanged"
                )


def _get_state(model: Model) -> dict[str, Any]:
    """Return all parts of a model by name, as comparable values."""
    state = {name: getattr(model, name) for name in ("schema", "missing", "unknown", "voting")}
    state |= copy.deepcopy({"settings": model.settings, "provenance": model.provenance})
    state |= {"units": model.units.tobytes(), "exponent": model.exponent}
    state["costs"] = None if model.costs is None else model.costs.tobytes()
    for number, tree in enumerate(model.trees):
        state |= {f"trees[{number}].{name}": getattr(tree, name).tobytes() for name in FIELD_DTYPES}
    return state


def _check_deep(subject: ExporterSubject) -> None:
    subject.export_files(make_deepest(), DEEP)


def _check_hostile(subject: ExporterSubject) -> None:
    for sample in iter_hostile_alone():
        subject.export_files(sample, HOSTILE)
    named, harmless = make_hostile()
    if _find_fault(subject, harmless, HOSTILE) is not None:
        return  # the fault is not in the names
    if _find_fault(subject, named, HOSTILE) is not None:
        for sample in (
            *iter_hostile_alone(),
            named,
        ):  # a single name first, for the smallest example
            _check_sample(subject, sample, HOSTILE)


def _check_different_files(pairs: Iterable[ModelPair], subject: ExporterSubject) -> None:
    for what, *models in pairs:
        one, other = (subject.export_files(SampleModel(what, model)) for model in models)
        if one is not None and one == other:
            break_law(
                f"two models that differ in {what}", "the same files", "different files or an error"
            )


def _check_missing(subject: ExporterSubject) -> None:
    _check_different_files(iter_missing_pairs(), subject)


def _check_unseen(subject: ExporterSubject) -> None:
    _check_different_files(iter_unseen_pairs(), subject)


def _check_differences(subject: ExporterSubject) -> None:
    _check_different_files(iter_answer_pairs(), subject)


def _check_equal_bits(subject: ExporterSubject) -> None:
    if subject.execute is None:
        skip_law("its files cannot be run without check_exporter(..., run=...)")
    for sample in iter_samples():
        _check_sample(subject, sample, WRITES_OR_REFUSES)


def _check_sample(subject: ExporterSubject, sample: SampleModel, law: Law) -> None:
    """Run the files written for a model; raise `LawBroken` if a prediction differs."""
    found = _find_fault(subject, sample, law)
    if found is not None:
        row, got, wanted = found
        break_law(f"export(<{sample.what}>), run on {row}", got, wanted)


def _find_fault(
    subject: ExporterSubject, sample: SampleModel, law: Law
) -> tuple[str, str, str] | None:
    """Return the first row with a different prediction; None if there is none or nothing to run."""
    files = subject.export_files(sample, law)
    if files is None or subject.execute is None:
        return None
    return find_difference(sample.model, files, subject.execute)


EXPORTER_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (WRITES_OR_REFUSES, _check_writes),
    (FILES, _skip_checked_law),
    (SOMETHING, _check_something_written),
    (REPEATS, _check_repeated_exports),
    (UNTOUCHED, _check_untouched),
    (DEEP, _check_deep),
    (MISSING, _check_missing),
    (UNSEEN, _check_unseen),
    (DIFFERENCES, _check_differences),
    (EQUAL_BITS, _check_equal_bits),
    (HOSTILE, _check_hostile),
)


# ---------------------------------------------------------------- running files

RunFunction = Callable[[Path, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]
"""``run(path, schema, rows)`` returns a prediction a row; see `treekit.testing.check_exporter`."""

ExecuteFunction = Callable[[Path, Schema, npt.NDArray[np.float64]], Iterator[tuple[str, Answers]]]
"""The same for rows of numbers and codes, as in `treekit.verify`: yields ways and predictions."""


def get_builtin_run(suffix: str) -> ExecuteFunction | None:
    """Return the function of `treekit.verify` that runs files of this ending; None if it cannot."""
    return next((runner.run_rows for runner in list_runners() if runner.suffix == suffix), None)


def wrap_run(run: RunFunction) -> ExecuteFunction:
    """Wrap an author's function to take rows of numbers and codes."""

    def execute_rows(
        path: Path, schema: Schema, rows: npt.NDArray[np.float64]
    ) -> Iterator[tuple[str, Answers]]:
        predictions = list(run(path, schema, [decode_cells(schema, row) for row in rows]))
        if len(predictions) != len(rows):
            raise VerificationError(
                f"run returned {len(predictions)} predictions for {len(rows)} rows; expected one "
                "for each row"
            )
        yield "run", _convert_answers(schema, predictions)

    return execute_rows


def _convert_answers(schema: Schema, predictions: list[Any]) -> Answers:
    """Convert predictions of the form ``(labels, numbers)``, None where a row is refused."""
    n_labels = len(schema.outputs) if schema.task == "classification" else 0
    label = np.zeros((len(predictions), len(schema.outputs)), dtype=np.int64)
    number = np.zeros((len(predictions), schema.n_values))
    for i, answer in enumerate(predictions):
        if answer is None:
            label[i] = REFUSED
            continue
        try:
            labels, numbers = answer
            number[i] = numbers
            if len(labels) != n_labels:
                raise ValueError(f"labels has length {len(labels)}")
        except (TypeError, ValueError) as error:
            raise VerificationError(
                f"run returned {answer!r} ({error}); expected a pair of sequences, labels of "
                f"length {n_labels} and numbers of length {schema.n_values}, or None where the "
                "row is refused"
            ) from error
        for k in range(n_labels):
            label[i, k] = encode_labels(schema.outputs[k], [labels[k]])[0]
    return Answers(label, number)


def find_difference(
    model: Model, files: Mapping[str, bytes], execute: ExecuteFunction
) -> tuple[str, str, str] | None:
    """Return the first row for which files and their model differ: the row, got, expected.

    None if there is none.  Files that cannot be run count as a difference.
    """
    rows, n_refused = make_probe_rows(model)
    wanted = expected(model, rows, n_refused)
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for name, content in files.items():
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        main = Path(folder) / next(iter(files))
        try:
            for _, given in execute(main, model.schema, rows):
                n = len(given.label)
                part = Answers(wanted.label[:n], wanted.number[:n])
                found = differing(part, given)
                if len(found):
                    row = int(found[0])
                    cells = dict(
                        zip(model.schema.names, decode_cells(model.schema, rows[row]), strict=True)
                    )
                    return (
                        f"the row {cells}",
                        describe_answer(model.schema, given, row),
                        describe_answer(model.schema, part, row),
                    )
        except Exception as error:  # noqa: BLE001 - an author's function, and what it runs
            return "rows of all kinds", format_exception(error), "predictions"
    return None


# ---------------------------------------------------------------- pairs of models
# Pairs of models that differ in the prediction for some row, so that their files must differ.

FEW, MANY = leaf([5.0, 0.0]), leaf([1.0, 6.0])
CUT = 0.5


class ModelPair(NamedTuple):
    """Two models, with a description of their difference."""

    what: str
    one: Model
    other: Model


def _make_pair(what: str, models: Iterable[Model]) -> ModelPair:
    return ModelPair(what, *models)


def iter_missing_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in the treatment of missing values."""
    yield _make_pair(
        "the side of missing numbers",
        (make_example_model(YES_NO, make_cut(CUT, s)) for s in (0, 1)),
    )
    sets = [subset("colour", ["red"], FEW, MANY, side) for side in (0, 1)]
    yield _make_pair(
        "the side of missing categories", (make_example_model(YES_NO, node) for node in sets)
    )
    branches = {"red": FEW, "green": MANY, "blue": MANY}
    branch_nodes = [multiway("colour", branches, missing) for missing in (0, 1)]
    yield _make_pair(
        "the branch of missing categories",
        (make_example_model(YES_NO, node) for node in branch_nodes),
    )
    missing_tests = [is_missing("size", FEW, MANY), is_missing("size", MANY, FEW)]
    yield _make_pair(
        "the sides of a missing split", (make_example_model(YES_NO, node) for node in missing_tests)
    )
    sided, level = make_example_model(YES_NO, make_cut(CUT)), make_example_model(YES_NO, sets[0])
    yield ModelPair("whether missing numbers are an error",
               sided, make_example_model(YES_NO, make_cut(CUT), missing="error"))  # fmt: skip
    yield ModelPair("whether missing categories are an error",
               level, make_example_model(YES_NO, sets[0], missing="error"))  # fmt: skip
    yield ModelPair("whether missing numbers make fractional instances",
               sided, make_example_model(YES_NO, make_cut(CUT), missing="fractional"))  # fmt: skip
    surrogates = [(Surrogate("age", 2.5, below=side),) for side in (0, 1)]
    nodes = [threshold("size", CUT, FEW, MANY, 1, own) for own in surrogates]
    yield _make_pair(
        "the side of a surrogate",
        (make_example_model(YES_NO, n, missing="surrogate") for n in nodes),
    )


def iter_unseen_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in the treatment of unseen texts and categories."""
    node = subset("colour", ["red"], FEW, MANY, 0)
    yield ModelPair(
        "whether unseen categories are an error",
        make_example_model(YES_NO, node),
        make_example_model(YES_NO, node, unknown="error"),
    )
    sides = [subset("colour", ["red"], FEW, MANY, 0, absent) for absent in ((), ["blue"])]
    yield _make_pair(
        "the side of a category unseen at a split", (make_example_model(YES_NO, n) for n in sides)
    )


def iter_answer_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in a threshold, a leaf, a category or a label."""
    up = float(np.nextafter(np.float32(CUT), np.float32(1)))
    one = make_example_model(YES_NO, make_cut(CUT))
    yield ModelPair("the last bit of a threshold", one, make_example_model(YES_NO, make_cut(up)))
    yield ModelPair(
        "the split feature", one, make_example_model(YES_NO, make_cut(CUT, column="age"))
    )
    sets = [subset("colour", own, FEW, MANY) for own in (["red"], ["red", "blue"])]
    yield _make_pair("a category of a set", (make_example_model(YES_NO, node) for node in sets))
    leaves = [threshold("size", CUT, FEW, leaf([1.0, weight])) for weight in (6.0, 6.0001)]
    yield _make_pair("the shares of a leaf", (make_example_model(YES_NO, node) for node in leaves))
    numbers = [threshold("size", CUT, leaf(1.0), leaf(value)) for value in (0.1, 0.1 + 1e-9)]
    yield _make_pair("the number of a leaf", (make_example_model(NUMBER, node) for node in numbers))
    yield ModelPair(
        "the number of trees", one, make_example_model(YES_NO, make_cut(CUT), make_cut(2.0))
    )
    other, wide = (
        Schema(COLUMNS, "y", classes=("no", "maybe")),
        Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64"),
    )
    yield ModelPair("a label", one, make_example_model(other, make_cut(CUT)))
    yield ModelPair("the type of the inputs", one, make_example_model(wide, make_cut(CUT)))
    trees = make_cut(CUT), make_cut(2.0), make_cut(-1.0)
    yield ModelPair(
        "soft or hard votes",
        make_example_model(YES_NO, *trees),
        make_example_model(YES_NO, *trees, voting="hard"),
    )
    costs = np.array([[0, 1], [9, 0]], dtype=np.int64)
    yield ModelPair(
        "misclassification costs", one, make_example_model(YES_NO, make_cut(CUT), costs=costs)
    )
