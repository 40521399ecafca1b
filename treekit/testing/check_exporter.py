"""Laws of an exporter, judged by what it writes and by running that."""

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
from treekit.model.tree import DTYPES
from treekit.testing.example_models import (
    COLUMNS,
    NUMBER,
    YES_NO,
    Sample,
    cut,
    deepest,
    hostile,
    hostile_alone,
    made,
    probe_rows,
    samples,
)
from treekit.testing.laws import Test, broken, inapplicable, judge, look_at, opened, said_by
from treekit.testing.report import Law, Report
from treekit.verify.answers import REFUSED, Answers, differing, expected, label_codes, said
from treekit.verify.probe_values import cells_of
from treekit.verify.run_artifact import runners

__all__ = [
    "EXPORTER_LAWS",
    "Execute",
    "Pair",
    "Run",
    "Subject",
    "answer_pairs",
    "builtin_run",
    "by_function",
    "check_exporter",
    "difference",
    "missing_pairs",
    "unseen_pairs",
]


# ---------------------------------------------------------------- exporters
# Whether an exporter keeps the laws of its contract.


def check_exporter(
    exporter: str | Exporter,
    settings: Mapping[str, Any] | None = None,
    *,
    run: Run | None = None,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge an exporter by the laws of its contract, on models of every sort.

    Parameters
    ----------
    exporter : str or Exporter
        An installed name, or a record.
    settings : mapping, optional
        The exporter's own settings; the others take their defaults.
    run : callable, optional
        ``run(path, schema, rows)`` executes the main file at `path` and
        returns one answer a row: ``(labels, numbers)``, or None where the row
        is refused.  `rows` are lists of cells in the order of
        ``schema.columns``: numbers, texts of categories, None for a missing
        value.  `labels` has one label for each of ``schema.outputs`` (none for
        a regression), `numbers` the probabilities of all their classes, or the
        predicted numbers, one output after the other.  Without it only files
        that `treekit.verify` can run are run.
    strict : bool
        A law that the exporter declares broken, and that holds, is a breach.
    fail : bool
        Raise for a breach; False: return the report whatever it says.

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
    found = opened("exporter", exporter, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    record = found.record
    execute = builtin_run(record.suffix) if run is None else by_function(run)
    subject = Subject(record, found.settings, execute)
    return judge(found.report, subject, EXPORTER_LAWS, record.exempt).settled(fail=fail)


# ---------------------------------------------------------------- exporter laws

STEM = "model"
Files = Mapping[str, bytes]

WRITES_OR_REFUSES = Law(
    "writes-or-refuses-by-name",
    "A model is written, or refused by a treekit.ExportError that says what it cannot express.",
    "the exception: raise ExportError for what the target has no words for",
)
FILES = Law(
    "main-file-first",
    "`export(model, name)` returns a mapping of plain file names to bytes, first `name + suffix`; "
    "where the suffix begins with a slash, paths in the folder `name`.",
    "what `export` returns: `.encode()` texts, and put the main file first",
)
SOMETHING = Law(
    "writes-a-model",
    "Some models are written: a threshold, a leaf, a set of levels, a number.",
    "what every model is refused for",
)
REPEATS = Law(
    "same-model-same-bytes",
    "Equal models are written with equal bytes, every time.",
    "the time, random names, `id()`, the order of a set, absolute paths",
)
UNTOUCHED = Law(
    "model-is-not-touched",
    "The model is after an export what it was before.",
    "assignments to the model's arrays, settings and provenance: take a copy first",
)
DEEP = Law(
    "deep-trees-are-written",
    "A tree of 5,000 splits one below the other is written, or refused by name.",
    "recursion: `treekit.export.nested_tests` makes functions of subtrees, tables need none",
)
HOSTILE = Law(
    "names-are-only-data",
    "Names, levels and labels are written as text that can do nothing, or refused by name.",
    "each place where a name is written: `string_literal` of treekit.export.literals",
)
MISSING = Law(
    "missing-values-are-written",
    "Models that differ in what a missing value does are written differently, or refused.",
    "`missing_yes` of a step, `model.missing`, surrogates: write them out, or raise ExportError",
)
UNSEEN = Law(
    "unseen-values-are-written",
    "Models that differ in what an unseen level does are written differently, or refused.",
    "`model.unknown`, and the levels that a step does not list",
)
DIFFERENCES = Law(
    "differences-are-written",
    "Models that answer differently are written differently, or refused.",
    "numbers that are rounded (write `repr`), and what of a model is never looked at",
)
EQUAL_BITS = Law(
    "equal-bits",
    "What is written answers every row as the model does, to the last bit.",
    "the row: the side of a missing value, `<=`, ties of labels, the one division at the end",
)


@dataclass(frozen=True)
class Subject:
    """An exporter under its settings, and how its files are run.

    Attributes
    ----------
    record : Exporter
    settings : dict
    execute : callable or None
        See `treekit.testing.check_exporter`; None: they cannot be run.
    """

    record: Exporter
    settings: dict[str, Any]
    execute: Execute | None = None

    def files(self, sample: Sample, law: Law = WRITES_OR_REFUSES) -> Files | None:
        """What is written for a model, checked; None if it is refused.

        `law` is broken by an exception that is no refusal.
        """
        call = f"export(<{sample.what}>, {STEM!r})"
        try:
            files = self.record.export(sample.model, STEM, **self.settings)
        except ExportError as refusal:
            if not str(refusal).strip():
                broken(call, "an ExportError without a message", "what it cannot express",
                       law=WRITES_OR_REFUSES.name)  # fmt: skip
            return None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), "files, or an ExportError", law=law.name,
                   look=look_at(error, law))  # fmt: skip
        problem = self._problem(files)
        if problem:
            broken(call, problem, f"{{{STEM + self.record.suffix!r}: b'...', ...}}", law=FILES.name)
        return dict(files)

    def _problem(self, files: Any) -> str:
        """What is wrong with the files of a model, or nothing."""
        if not isinstance(files, Mapping) or not files:
            return f"{files!r:.80}"
        folder = STEM if self.record.suffix.startswith("/") else ""
        for name, content in files.items():
            if not isinstance(name, str) or not is_place(name, folder):
                return f"a file {name!r}, which is no plain name"
            if not isinstance(content, bytes):
                return f"{name!r} holds a {type(content).__name__}"
        first = next(iter(files))
        return "" if first == STEM + self.record.suffix else f"{first!r} first"


def _writes(subject: Subject) -> None:
    for sample in samples():
        subject.files(sample)


def _judged_before(subject: Subject) -> None:
    """Nothing is left to ask: `Subject.files` judges this whenever something is written."""


def _something(subject: Subject) -> None:
    if all(subject.files(sample) is None for sample in samples()):
        broken("models of every sort", "every one is refused", "files of some of them")


def _repeats(subject: Subject) -> None:
    for sample in samples():
        first = subject.files(sample)
        if first is None:
            continue
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            path = Path(folder) / "copy.treekit"
            sample.model.save(path)
            equal = Sample(sample.what, load(path))
        for what, model in (("a second time", sample), ("of an equal model", equal)):
            again = subject.files(model)
            if again != first:
                broken(f"export(<{sample.what}>) {what}", _apart(first, again or {}), "equal bytes")


def _apart(first: Files, again: Files) -> str:
    """Where two writings of a model part."""
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
    return f"other files: {', '.join(again)}"


def _untouched(subject: Subject) -> None:
    for sample in samples():
        before = _state(sample.model)
        subject.files(sample)
        for name, value in _state(sample.model).items():
            if value != before[name]:
                broken(
                    f"export(<{sample.what}>)", f"its {name} is another", f"its {name} as it was"
                )


def _state(model: Model) -> dict[str, Any]:
    """All that a model is made of, by name, as values that compare."""
    state = {name: getattr(model, name) for name in ("schema", "missing", "unknown", "voting")}
    state |= copy.deepcopy({"settings": model.settings, "provenance": model.provenance})
    state |= {"units": model.units.tobytes(), "exponent": model.exponent}
    state["costs"] = None if model.costs is None else model.costs.tobytes()
    for number, tree in enumerate(model.trees):
        state |= {f"trees[{number}].{name}": getattr(tree, name).tobytes() for name in DTYPES}
    return state


def _deep(subject: Subject) -> None:
    subject.files(deepest(), DEEP)


def _hostile(subject: Subject) -> None:
    for sample in hostile_alone():
        subject.files(sample, HOSTILE)
    named, harmless = hostile()
    if _fault(subject, harmless, HOSTILE) is not None:
        return  # the names are not what is wrong
    if _fault(subject, named, HOSTILE) is not None:
        for sample in (*hostile_alone(), named):  # the first of them alone, if it is one
            _compare(subject, sample, HOSTILE)


def _differ(pairs: Iterable[Pair], subject: Subject) -> None:
    for what, *models in pairs:
        one, other = (subject.files(Sample(what, model)) for model in models)
        if one is not None and one == other:
            broken(
                f"two models that differ in {what}", "the same files", "other files, or a refusal"
            )


def _missing(subject: Subject) -> None:
    _differ(missing_pairs(), subject)


def _unseen(subject: Subject) -> None:
    _differ(unseen_pairs(), subject)


def _differences(subject: Subject) -> None:
    _differ(answer_pairs(), subject)


def _equal_bits(subject: Subject) -> None:
    if subject.execute is None:
        inapplicable("no way to run its files is given: check_exporter(..., run=...)")
    for sample in samples():
        _compare(subject, sample, WRITES_OR_REFUSES)


def _compare(subject: Subject, sample: Sample, law: Law) -> None:
    """Run what is written for a model."""
    found = _fault(subject, sample, law)
    if found is not None:
        row, got, wanted = found
        broken(f"export(<{sample.what}>), asked for {row}", got, wanted)


def _fault(subject: Subject, sample: Sample, law: Law) -> tuple[str, str, str] | None:
    """The first row that is answered otherwise; None if there is none, or nothing to run."""
    files = subject.files(sample, law)
    if files is None or subject.execute is None:
        return None
    return difference(sample.model, files, subject.execute)


EXPORTER_LAWS: tuple[tuple[Law, Test], ...] = (
    (WRITES_OR_REFUSES, _writes),
    (FILES, _judged_before),
    (SOMETHING, _something),
    (REPEATS, _repeats),
    (UNTOUCHED, _untouched),
    (DEEP, _deep),
    (MISSING, _missing),
    (UNSEEN, _unseen),
    (DIFFERENCES, _differences),
    (EQUAL_BITS, _equal_bits),
    (HOSTILE, _hostile),
)


# ---------------------------------------------------------------- artifacts
# Running what an exporter wrote: by its author's function, or as `treekit.verify` does.

Run = Callable[[Path, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]
"""``run(path, schema, rows)``: an answer a row, see `treekit.testing.check_exporter`."""

Execute = Callable[[Path, Schema, npt.NDArray[np.float64]], Iterator[tuple[str, Answers]]]
"""The same over rows of numbers and codes, as `treekit.verify` has it: ways and answers."""


def builtin_run(suffix: str) -> Execute | None:
    """How treekit itself runs files of this ending; None if it does not."""
    return next((runner.run for runner in runners() if runner.suffix == suffix), None)


def by_function(run: Run) -> Execute:
    """Let an author's function answer rows of numbers and codes."""

    def execute(
        path: Path, schema: Schema, rows: npt.NDArray[np.float64]
    ) -> Iterator[tuple[str, Answers]]:
        told = list(run(path, schema, [cells_of(schema, row) for row in rows]))
        if len(told) != len(rows):
            raise VerificationError(f"run gave {len(told)} answers to {len(rows)} rows")
        yield "run", _answers(schema, told)

    return execute


def _answers(schema: Schema, told: list[Any]) -> Answers:
    """Answers of the form ``(labels, numbers)``, None where a row is refused."""
    n_labels = len(schema.outputs) if schema.task == "classification" else 0
    label = np.zeros((len(told), len(schema.outputs)), dtype=np.int64)
    number = np.zeros((len(told), schema.n_values))
    for i, answer in enumerate(told):
        if answer is None:
            label[i] = REFUSED
            continue
        try:
            labels, numbers = answer
            number[i] = numbers
            if len(labels) != n_labels:
                raise ValueError(f"{len(labels)} labels")
        except (TypeError, ValueError) as error:
            raise VerificationError(
                f"run answered {answer!r} ({error}); an answer is a pair of {n_labels} labels and "
                f"{schema.n_values} numbers, or None where the row is refused"
            ) from error
        for k in range(n_labels):
            label[i, k] = label_codes(schema.outputs[k], [labels[k]])[0]
    return Answers(label, number)


def difference(
    model: Model, files: Mapping[str, bytes], execute: Execute
) -> tuple[str, str, str] | None:
    """The first row that files answer otherwise than their model: the row, got, expected.

    None if there is none.  Files that cannot be run are a difference, too.
    """
    rows, n_refused = probe_rows(model)
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
                        zip(model.schema.names, cells_of(model.schema, rows[row]), strict=True)
                    )
                    return (
                        f"the row {cells}",
                        said(model.schema, given, row),
                        said(model.schema, part, row),
                    )
        except Exception as error:  # noqa: BLE001 - an author's function, and what it runs
            return "rows of all sorts", said_by(error), "answers"
    return None


# ---------------------------------------------------------------- pairs
# Pairs of models that answer some row differently: whoever writes both writes two things.

FEW, MANY = leaf([5.0, 0.0]), leaf([1.0, 6.0])
AT = 0.5


class Pair(NamedTuple):
    """What differs, in words, and the two models."""

    what: str
    one: Model
    other: Model


def _pair(what: str, models: Iterable[Model]) -> Pair:
    return Pair(what, *models)


def missing_pairs() -> Iterator[Pair]:
    """Models that differ in what a missing value does."""
    yield _pair("the side that missing numbers take", (made(YES_NO, cut(AT, s)) for s in (0, 1)))
    sets = [subset("colour", ["red"], FEW, MANY, side) for side in (0, 1)]
    yield _pair("the side that missing levels take", (made(YES_NO, node) for node in sets))
    branches = {"red": FEW, "green": MANY, "blue": MANY}
    ways = [multiway("colour", branches, missing) for missing in (0, 1)]
    yield _pair("the branch that missing levels take", (made(YES_NO, node) for node in ways))
    asked = [is_missing("size", FEW, MANY), is_missing("size", MANY, FEW)]
    yield _pair("the side of a split by what is missing", (made(YES_NO, node) for node in asked))
    sided, level = made(YES_NO, cut(AT)), made(YES_NO, sets[0])
    yield Pair("missing numbers take a side or are an error",
               sided, made(YES_NO, cut(AT), missing="error"))  # fmt: skip
    yield Pair("missing levels take a side or are an error",
               level, made(YES_NO, sets[0], missing="error"))  # fmt: skip
    yield Pair("missing numbers take a side or divide the row",
               sided, made(YES_NO, cut(AT), missing="fractional"))  # fmt: skip
    spare = [(Surrogate("age", 2.5, below=side),) for side in (0, 1)]
    nodes = [threshold("size", AT, FEW, MANY, 1, own) for own in spare]
    yield _pair("what a surrogate answers", (made(YES_NO, n, missing="surrogate") for n in nodes))


def unseen_pairs() -> Iterator[Pair]:
    """Models that differ in what a text outside the vocabulary does, or a level not seen there."""
    node = subset("colour", ["red"], FEW, MANY, 0)
    yield Pair("unseen levels are missing or an error",
               made(YES_NO, node), made(YES_NO, node, unknown="error"))  # fmt: skip
    sides = [subset("colour", ["red"], FEW, MANY, 0, absent) for absent in ((), ["blue"])]
    yield _pair("the side of a level that a split never saw", (made(YES_NO, n) for n in sides))


def answer_pairs() -> Iterator[Pair]:
    """Models that differ in a threshold, a leaf, a level or a label."""
    up = float(np.nextafter(np.float32(AT), np.float32(1)))
    one = made(YES_NO, cut(AT))
    yield Pair("a threshold, by its last bit", one, made(YES_NO, cut(up)))
    yield Pair("the column that is asked", one, made(YES_NO, cut(AT, column="age")))
    sets = [subset("colour", own, FEW, MANY) for own in (["red"], ["red", "blue"])]
    yield _pair("a level of a set", (made(YES_NO, node) for node in sets))
    leaves = [threshold("size", AT, FEW, leaf([1.0, weight])) for weight in (6.0, 6.0001)]
    yield _pair("the shares of a leaf", (made(YES_NO, node) for node in leaves))
    numbers = [threshold("size", AT, leaf(1.0), leaf(value)) for value in (0.1, 0.1 + 1e-9)]
    yield _pair("the number of a leaf", (made(NUMBER, node) for node in numbers))
    yield Pair("a tree more", one, made(YES_NO, cut(AT), cut(2.0)))
    other, wide = (
        Schema(COLUMNS, "y", classes=("no", "maybe")),
        Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64"),
    )
    yield Pair("a label", one, made(other, cut(AT)))
    yield Pair("the type of the inputs", one, made(wide, cut(AT)))
    trees = cut(AT), cut(2.0), cut(-1.0)
    yield Pair("soft votes or hard ones",
               made(YES_NO, *trees), made(YES_NO, *trees, voting="hard"))  # fmt: skip
    costs = np.array([[0, 1], [9, 0]], dtype=np.int64)
    yield Pair("what mistakes cost", one, made(YES_NO, cut(AT), costs=costs))
