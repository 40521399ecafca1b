"""Laws of an importer, judged on foreign things, on its own sources, and on what became of them."""

from __future__ import annotations

import hashlib
import pickle
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import TreekitError
from treekit.model.model import Model
from treekit.model.scoring import decide, sums
from treekit.testing.calls import look_at, said_by
from treekit.testing.foreign import THINGS, damaged, foreign_paths, paths_to_nothing
from treekit.testing.importer_subject import FOREIGN, OWN, READS, Subject, flaw, shown
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.report import Law
from treekit.testing.rows import probe_rows
from treekit.verify.probe_values import cells_of
from treekit.verify.report import model_sha256

__all__ = ["IMPORTER_LAWS"]

CHEAP = Law(
    "recognising-is-cheap",
    "`recognises` neither reads a file whole nor imports anything.",
    "`recognises`: a type, an ending or the first bytes; `sys.modules` tells what is imported",
)
REPEATS = Law(
    "same-source-same-model",
    "A source that is read twice gives equal models.",
    "the order of a set or of a folder, random numbers, the time",
)
UNTOUCHED = Law(
    "source-is-not-touched",
    "Neither `recognises` nor `read` changes the source.",
    "assignments to the source's parts; files that are opened to be written",
)
EQUAL = Law(
    "predictions-are-equal",
    "The model answers every row as its source does.",
    "the row: `<` or `<=`, the side of a missing value, the order of the classes",
)
REFUSES = Law(
    "read-refuses-by-name",
    "`read` refuses what is none of its kind by an error of treekit's, such as ModelError.",
    "the exception: check what is there before it is used, and raise ModelError",
)
CORRUPT = Law(
    "corrupt-files-are-refused",
    "A damaged file is refused by an error of treekit's, or read as a model that is well formed.",
    "the exception: check what is there before it is used, and raise ModelError",
)


def _foreign(subject: Subject) -> None:
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for thing in (*THINGS, *foreign_paths(Path(folder))):
            subject.recognises(thing, FOREIGN, expected=False)
        for source in subject.sources:
            if isinstance(source, Path):
                for path in paths_to_nothing(Path(folder), source.suffix):
                    subject.recognises(path, FOREIGN, expected=False)


def _cheap(subject: Subject) -> None:
    before = set(sys.modules)
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        endings = {source.suffix for source in subject.sources if isinstance(source, Path)}
        for ending in (".unheard-of", *sorted(endings)):
            path = Path(folder) / f"big{ending}"
            with path.open("wb") as stream:
                stream.truncate(_BIG)  # a hole, which takes no disk
            peak = _peak(subject.record.recognises, path)
            if peak > _BIG // 4:
                call = f"recognises({shown(path)}), a file of {_BIG >> 20} MB"
                broken(call, f"{peak >> 20} MB of memory were taken", "less than a fourth of that")
    own = {subject.record.recognises.__module__.partition(".")[0], *sys.stdlib_module_names}
    new = sorted({name.partition(".")[0] for name in set(sys.modules) - before} - own)
    if new:
        broken("recognises(<a file of another kind>)", f"it imports {', '.join(new)}", "no import")


_BIG = 32 << 20


def _peak(recognises: Callable[[Any], Any], path: Path) -> int:
    """Bytes that a call takes at most; one that raises is another law's affair."""
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


def _own(subject: Subject) -> None:
    subject.need_sources()
    for source in subject.sources:
        subject.recognises(source, OWN, expected=True)


def _reads(subject: Subject) -> None:
    subject.need_sources()
    for source in subject.sources:
        subject.read(source)


def _repeats(subject: Subject) -> None:
    subject.need_sources()
    for source in subject.sources:
        one, two = subject.read(source), subject.read(source)
        if model_sha256(one) != model_sha256(two):
            broken(f"read({shown(source)}) twice", f"{one!r}, then {two!r}", "equal models")


def _untouched(subject: Subject) -> None:
    subject.need_sources()
    for source in subject.sources:
        before = _digest(source)
        if before is None:
            inapplicable(f"{shown(source)} cannot be pickled, so that nobody sees it change")
        subject.recognises(source, OWN, expected=True)
        subject.read(source)
        if _digest(source) != before:
            broken(f"read({shown(source)})", "the source is another", "the source as it was")


def _digest(source: Any) -> str | None:
    """Of a file or folder what it holds, of an object its pickle; None if it has none."""
    if isinstance(source, Path):
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        told = [(str(path), path.read_bytes()) for path in files if path.is_file()]
        beside = sorted(path.name for path in source.parent.iterdir())
        return hashlib.sha256(repr((told, beside)).encode()).hexdigest()
    try:
        return hashlib.sha256(pickle.dumps(source)).hexdigest()
    except Exception:  # noqa: BLE001 - objects that hold what cannot be pickled
        return None


def _equal(subject: Subject) -> None:
    subject.need_sources()
    if subject.predict is None:
        inapplicable("its source's answers are not given: check_importer(..., predict=...)")
    for source in subject.sources:
        model = subject.read(source)
        rows, n_refused = probe_rows(model)
        rows = rows[: len(rows) - n_refused]
        if not subject.missing:
            rows = np.array([row for row in rows if _known(model, row)]).reshape(-1, rows.shape[1])
        cells = [cells_of(model.schema, row) for row in rows]
        told = list(subject.predict(source, model.schema, cells))
        if len(told) != len(rows):
            broken(f"predict({shown(source)}, ...)", f"{len(told)} answers", f"{len(rows)} of them")
        wanted = decide(model, sums(model, rows))
        for row, theirs, ours in zip(cells, told, wanted, strict=True):
            if not _same(model, theirs, ours):
                call = f"read({shown(source)}), asked for the row {row}"
                broken(call, ours, theirs)


def _known(model: Model, row: npt.NDArray[np.float64]) -> bool:
    """Whether no cell is missing or unseen."""
    cells = zip(model.schema.columns, row.tolist(), strict=True)
    return all(x == x and (c.kind == "numeric" or 0 <= x < len(c.levels)) for c, x in cells)


def _same(model: Model, theirs: Any, ours: Any) -> bool:
    """Equal labels, or numbers that differ by no more than a model's grid makes them."""
    if model.schema.task == "classification":
        return bool(np.array_equal(theirs, ours))
    step = np.ldexp(0.5, model.exponent) + 4.0 * np.spacing(np.abs(ours))
    return bool(np.all(np.abs(np.asarray(theirs, dtype=np.float64) - ours) <= step))


def _refuses(subject: Subject) -> None:
    for thing in THINGS[:-1]:  # all but the one that answers no question
        try:
            answer = subject.record.read(thing, **subject.settings)
        except TreekitError:
            continue
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(f"read({shown(thing)})", said_by(error), "an error of treekit's",
                   look=look_at(error, REFUSES))  # fmt: skip
        broken(f"read({shown(thing)})", f"{answer!r:.80}", "an error of treekit's")


def _corrupt(subject: Subject) -> None:
    files = [s for s in subject.sources if isinstance(s, Path) and s.is_file()]
    if not files:
        inapplicable("none of the sources is a file")
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for source in files:
            place = Path(folder) / source.name
            for damage, content in damaged(source.read_bytes()):
                place.write_bytes(content)
                _damaged(subject, place, f"read({shown(source)}), {damage}")


def _damaged(subject: Subject, place: Path, call: str) -> None:
    try:
        model = subject.record.read(place, **subject.settings)
    except TreekitError:
        return
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        broken(call, said_by(error), "an error of treekit's", look=look_at(error, CORRUPT))
    problem = flaw(model)
    if problem:
        broken(call, problem, "an error of treekit's, or a model that is well formed")


IMPORTER_LAWS: tuple[tuple[Law, Test], ...] = (
    (CHEAP, _cheap),  # first: what is imported once is not imported again
    (UNTOUCHED, _untouched),
    (FOREIGN, _foreign),
    (REFUSES, _refuses),
    (OWN, _own),
    (READS, _reads),
    (REPEATS, _repeats),
    (CORRUPT, _corrupt),
    (EQUAL, _equal),
)
