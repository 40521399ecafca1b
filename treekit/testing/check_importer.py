"""Laws of an importer, tested on foreign objects, on its sources, and on the models read."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Importer
from treekit.data.schema import Schema
from treekit.errors import TreekitError
from treekit.model.model import Model, make_model
from treekit.model.model_file import load
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.testing.example_models import make_probe_rows
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
from treekit.verify.probe_values import decode_cells
from treekit.verify.report import hash_model

# ---------------------------------------------------------------- check

PredictFunction = Callable[[Any, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]


def check_importer(
    importer: str | Importer,
    settings: Mapping[str, Any] | None = None,
    *,
    sources: Sequence[Any] = (),
    predict: PredictFunction | None = None,
    missing: bool = True,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that an importer satisfies the laws of its contract.

    Parameters
    ----------
    importer : str or Importer
        An installed name, or a record.
    settings : mapping, optional
        The importer's own settings; the others take their defaults.
    sources : sequence
        Fitted objects, or paths of files, that it reads: small ones of every
        kind.  Copies of the files are damaged in various ways.  Without
        sources, only the treatment of foreign objects is tested.
    predict : callable, optional
        ``predict(source, schema, rows)`` returns the predictions of the source
        itself, a label or a number a row (for several outputs a list of them).
        `rows` are lists of cells in the order of ``schema.columns``: numbers, texts
        of categories, None for a missing value.
    missing : bool
        Whether these rows contain missing and unseen values, if the model
        accepts them; False for a source whose own library does not.
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
    found = open_component("importer", importer, settings, strict)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    record = found.record
    subject = ImporterSubject(record, found.settings, tuple(sources), predict, missing)
    return judge_laws(found.report, subject, IMPORTER_LAWS, record.exempt).settled(fail=fail)


# ---------------------------------------------------------------- importer under test

FOREIGN = Law(
    "foreign-things-are-passed-over",
    "`recognises` returns False, and does not raise, for objects of other kinds.",
    "`recognises`: test the type first, then the name of the file; return a bool",
)
OWN = Law(
    "own-sources-are-recognised",
    "`recognises` returns True for a source of its kind.",
    "`recognises`, or the given sources",
)
READS = Law(
    "reads-a-model",
    "`read` returns a treekit.Model that passes all checks of a model and can be saved.",
    "how it makes trees: `treekit.model.builder`, then `make_model`, which checks them",
)


@dataclass(frozen=True)
class ImporterSubject:
    """An importer with its settings, and the sources that it is tested on.

    Attributes
    ----------
    record : Importer
    settings : dict
    sources : sequence
        Objects or paths that it reads.
    predict : callable or None
    missing : bool
        See `treekit.testing.check_importer`.
    """

    record: Importer
    settings: dict[str, Any]
    sources: Sequence[Any]
    predict: Callable[..., Any] | None = None
    missing: bool = True

    def check_recognises(self, source: Any, law: Law, expected: bool) -> None:
        """Check the result of `recognises` for a source; any other than `expected` breaks `law`."""
        call = f"recognises({format_source(source)})"
        try:
            answer: Any = self.record.recognises(source)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            break_law(
                call, format_exception(error), expected, law=law.name, look=format_hint(error, law)
            )
        if not isinstance(answer, bool | np.bool_) or bool(answer) != expected:
            break_law(call, repr(answer)[:80], expected, law=law.name)

    def read_model(self, source: Any) -> Model:
        """Read one of its own sources; return the checked model."""
        call = f"read({format_source(source)})"
        try:
            model = self.record.read(source, **self.settings)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            break_law(
                call,
                format_exception(error),
                "a model",
                law=READS.name,
                look=format_hint(error, READS),
            )
        problem = find_flaw(model)
        if problem:
            break_law(call, problem, "a treekit.Model, well formed", law=READS.name)
        checked: Model = model
        return checked

    def require_sources(self) -> None:
        """End a test that needs sources if there are none."""
        if not self.sources:
            skip_law("it needs sources: check_importer(..., sources=[...])")


def find_flaw(model: Any) -> str:
    """Describe a fault of a model; empty if there is none."""
    if not isinstance(model, Model):
        return f"a {type(model).__name__}"
    try:
        again = make_model(
            model.schema,
            model.trees,
            missing=model.missing,
            unknown=model.unknown,
            voting=model.voting,
            costs=model.costs,
            combine=model.combine,
            link=model.link,
        )
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            model.save(Path(folder) / "m.treekit")
            stored = load(Path(folder) / "m.treekit")
    except Exception as error:  # noqa: BLE001 - a plugin's model may fail in any way
        return format_exception(error)
    if not np.array_equal(again.units, model.units) or again.exponent != model.exponent:
        return "a model whose fixed-point units differ from those of make_model"
    return "" if hash_model(stored) == hash_model(model) else "a model that changes when saved"


def format_source(source: Any) -> str:
    """Format a source for an example."""
    return f"Path({source.name!r:.80})" if isinstance(source, Path) else f"{source!r:.80}"


# ---------------------------------------------------------------- laws

CHEAP = Law(
    "recognising-is-cheap",
    "`recognises` neither reads a complete file nor imports a module.",
    "`recognises`: test a type, an ending or the first bytes; `sys.modules` lists imported modules",
)
REPEATS = Law(
    "same-source-same-model",
    "Reading a source twice gives equal models.",
    "the order of a set or of a folder, random numbers, the time",
)
UNTOUCHED = Law(
    "source-is-not-touched",
    "Neither `recognises` nor `read` changes the source.",
    "assignments to parts of the source; files opened for writing",
)
EQUAL = Law(
    "predictions-are-equal",
    "The model gives the prediction of its source for every row.",
    "the row: `<` or `<=`, the side of a missing value, the order of the classes",
)
REFUSES = Law(
    "read-refuses-by-name",
    "`read` rejects objects of other kinds by an error of treekit, such as ModelError.",
    "the exception: check each part before it is used, and raise ModelError",
)
CORRUPT = Law(
    "corrupt-files-are-refused",
    "A damaged file is rejected by an error of treekit, or read as a well-formed model.",
    "the exception: check each part before it is used, and raise ModelError",
)


def _check_foreign(subject: ImporterSubject) -> None:
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for thing in (*FOREIGN_OBJECTS, *iter_foreign_paths(Path(folder))):
            subject.check_recognises(thing, FOREIGN, expected=False)
        for source in subject.sources:
            if isinstance(source, Path):
                for path in iter_absent_paths(Path(folder), source.suffix):
                    subject.check_recognises(path, FOREIGN, expected=False)


def _check_cheap(subject: ImporterSubject) -> None:
    before = set(sys.modules)
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        endings = {source.suffix for source in subject.sources if isinstance(source, Path)}
        for ending in (".unheard-of", *sorted(endings)):
            path = Path(folder) / f"big{ending}"
            with path.open("wb") as stream:
                stream.truncate(_BIG_BYTES)  # sparse, so that it takes no disk space
            peak = _measure_peak_memory(subject.record.recognises, path)
            if peak > _BIG_BYTES // 4:
                call = f"recognises({format_source(path)}), a file of {_BIG_BYTES >> 20} MB"
                break_law(call, f"{peak >> 20} MB of memory used", "less than a quarter of that")
    own = {subject.record.recognises.__module__.partition(".")[0], *sys.stdlib_module_names}
    new = sorted({name.partition(".")[0] for name in set(sys.modules) - before} - own)
    if new:
        break_law(
            "recognises(<a file of another kind>)", f"it imports {', '.join(new)}", "no import"
        )


_BIG_BYTES = 32 << 20


def _measure_peak_memory(recognises: Callable[[Any], Any], path: Path) -> int:
    """Return the peak memory of a call in bytes; 0 if it raises, which another law tests."""
    already = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        recognises(path)
        return tracemalloc.get_traced_memory()[1] - before
    except Exception:  # noqa: BLE001 - a plugin may raise anything
        return 0
    finally:
        if not already:
            tracemalloc.stop()


def _check_own(subject: ImporterSubject) -> None:
    subject.require_sources()
    for source in subject.sources:
        subject.check_recognises(source, OWN, expected=True)


def _check_reads(subject: ImporterSubject) -> None:
    subject.require_sources()
    for source in subject.sources:
        subject.read_model(source)


def _check_repeated_reads(subject: ImporterSubject) -> None:
    subject.require_sources()
    for source in subject.sources:
        one, two = subject.read_model(source), subject.read_model(source)
        if hash_model(one) != hash_model(two):
            break_law(
                f"read({format_source(source)}) twice", f"{one!r}, then {two!r}", "equal models"
            )


def _check_untouched(subject: ImporterSubject) -> None:
    subject.require_sources()
    for source in subject.sources:
        before = _hash_source(source)
        if before is None:
            skip_law(f"{format_source(source)} cannot be pickled to detect changes")
        subject.check_recognises(source, OWN, expected=True)
        subject.read_model(source)
        if _hash_source(source) != before:
            break_law(
                f"read({format_source(source)})", "the source was changed", "the source unchanged"
            )


def _hash_source(source: Any) -> str | None:
    """Return the digest of a file, a folder or an object's pickle; None if it has no pickle."""
    if isinstance(source, Path):
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        content = [(str(path), path.read_bytes()) for path in files if path.is_file()]
        siblings = sorted(path.name for path in source.parent.iterdir())
        return hashlib.sha256(repr((content, siblings)).encode()).hexdigest()
    try:
        return hashlib.sha256(pickle.dumps(source)).hexdigest()
    except Exception:  # noqa: BLE001 - pickling an object may raise anything
        return None


def _check_equal(subject: ImporterSubject) -> None:
    subject.require_sources()
    if subject.predict is None:
        skip_law("it needs the source's predictions: check_importer(..., predict=...)")
    for source in subject.sources:
        model = subject.read_model(source)
        rows, n_refused = make_probe_rows(model)
        rows = rows[: len(rows) - n_refused]
        if not subject.missing:
            rows = np.array([row for row in rows if _is_known(model, row)]).reshape(
                -1, rows.shape[1]
            )
        cells = [decode_cells(model.schema, row) for row in rows]
        predictions = list(subject.predict(source, model.schema, cells))
        if len(predictions) != len(rows):
            break_law(
                f"predict({format_source(source)}, ...)",
                f"{len(predictions)} predictions",
                f"{len(rows)} of them",
            )
        wanted = predict_from_sums(model, sum_leaf_values(model, rows))
        for row, theirs, ours in zip(cells, predictions, wanted, strict=True):
            if not _is_same_prediction(model, theirs, ours):
                call = f"read({format_source(source)}), run on the row {row}"
                break_law(call, ours, theirs)


def _is_known(model: Model, row: npt.NDArray[np.float64]) -> bool:
    """Whether no cell is missing or unseen."""
    cells = zip(model.schema.columns, row.tolist(), strict=True)
    return all(x == x and (c.kind == "numeric" or 0 <= x < len(c.levels)) for c, x in cells)


def _is_same_prediction(model: Model, theirs: Any, ours: Any) -> bool:
    """Whether labels are equal, or numbers up to the fixed-point units of the model."""
    if model.schema.task == "classification":
        return bool(np.array_equal(theirs, ours))
    step = np.ldexp(0.5, model.exponent) + 4.0 * np.spacing(np.abs(ours))
    return bool(np.all(np.abs(np.asarray(theirs, dtype=np.float64) - ours) <= step))


def _check_refuses(subject: ImporterSubject) -> None:
    for thing in FOREIGN_OBJECTS[:-1]:  # without `_RaisingObject`, which raises for any access
        try:
            answer = subject.record.read(thing, **subject.settings)
        except TreekitError:
            continue
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            break_law(
                f"read({format_source(thing)})",
                format_exception(error),
                "an error of treekit",
                look=format_hint(error, REFUSES),
            )
        break_law(f"read({format_source(thing)})", f"{answer!r:.80}", "an error of treekit")


def _check_corrupt(subject: ImporterSubject) -> None:
    files = [s for s in subject.sources if isinstance(s, Path) and s.is_file()]
    if not files:
        skip_law("none of the sources is a file")
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for source in files:
            place = Path(folder) / source.name
            for damage, content in iter_damaged(source.read_bytes()):
                place.write_bytes(content)
                _check_damaged(subject, place, f"read({format_source(source)}), {damage}")


def _check_damaged(subject: ImporterSubject, place: Path, call: str) -> None:
    try:
        model = subject.record.read(place, **subject.settings)
    except TreekitError:
        return
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        break_law(
            call, format_exception(error), "an error of treekit", look=format_hint(error, CORRUPT)
        )
    problem = find_flaw(model)
    if problem:
        break_law(call, problem, "an error of treekit, or a well-formed model")


IMPORTER_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (CHEAP, _check_cheap),  # first, as a module is imported only once
    (UNTOUCHED, _check_untouched),
    (FOREIGN, _check_foreign),
    (REFUSES, _check_refuses),
    (OWN, _check_own),
    (READS, _check_reads),
    (REPEATS, _check_repeated_reads),
    (CORRUPT, _check_corrupt),
    (EQUAL, _check_equal),
)


# ---------------------------------------------------------------- foreign objects
# Objects, paths and damaged files that no importer may accept or fail on.


class _RaisingObject:
    """An object that raises for any attribute, comparison or truth test."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(
            f"attribute {name!r} of an object of unknown type was accessed; test its type first"
        )

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("an object of unknown type was compared; test its type first")

    def __bool__(self) -> bool:
        raise RuntimeError("an object of unknown type was used as a Boolean; test its type first")

    __hash__ = object.__hash__


FOREIGN_OBJECTS: tuple[Any, ...] = (
    *(None, 0, -1.5, True, "", "model", b"model", (), [], {}, {"tree": []}, object(), object),
    *(print, sys, np.zeros(3), np.zeros((2, 2)), SimpleNamespace(tree_=None), _RaisingObject()),
)
"""Objects that are not models of any library."""


def iter_foreign_paths(folder: Path) -> Iterator[Path]:
    """Yield files of an unknown kind, created in `folder`, and paths that are not files."""
    for name in ("model.unheard-of", "model", "\u202e.x", "a\nb", "'; ls", "%s{}"):
        (folder / name).write_bytes(b"\x00\x01 no model \xff" * 3)
        yield folder / name
    yield folder
    yield Path(os.devnull)
    yield from iter_absent_paths(folder, ".unheard-of")


def iter_absent_paths(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield paths with this ending that do not exist, some of which are invalid."""
    for name in ("absent", "nul\0", "half \udc80", "long" * 1000, "../absent"):
        yield folder / f"{name}{suffix}"


def iter_damaged(content: bytes, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield a file's content with various kinds of damage, each with a description."""
    rng = np.random.default_rng(seed)
    size = len(content)
    yield "emptied", b""
    for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        yield f"cut after {int(size * share)} bytes", content[: int(size * share)]
    yield "without the last byte", content[:-1]
    yield "without the first byte", content[1:]
    yield "replaced by another file", b"\x00\x01 no model \xff" * 20
    yield "its content twice", content + content
    yield "with binary bytes in front", b"\xff\xfe\x00" + content
    lines = content.splitlines(keepends=True)
    for at in rng.integers(len(lines), size=min(len(lines), 12)) if len(lines) > 1 else ():
        yield f"without line {at + 1}", b"".join(lines[:at] + lines[at + 1 :])
    for number in range(40 if size else 0):
        at, other = int(rng.integers(size)), int(rng.integers(256))
        if number % 2:  # another digit, letter or sign is harder to detect
            other = ord("0129-.eE<>{}[]:,\"'nNaA x"[other % 24])
        yield f"byte {at} set to {other}", content[:at] + bytes([other]) + content[at + 1 :]
