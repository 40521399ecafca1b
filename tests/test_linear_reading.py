"""Reading takes time proportional to the size of the input, also of damaged input.

Counted are calls, the elements that methods of sequences visit, such as ``names.count``, and the
columns that pyarrow parses: the same numbers on every machine.  ``python -m benchmarks`` is for
seconds.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from treekit.data.column_report import read_declaration
from treekit.data.csv_files import CsvFile
from treekit.documents.files import write_rules
from treekit.documents.json_rules import read_json
from treekit.model.model_file import parse_model_file
from treekit.rules.read_text import parse_rules, read_edited

_VISITING = {"count", "index", "remove", "insert", "copy", "replace", "find", "extend"}
"""Methods of sequences that visit their elements."""


def count_work(run: Callable[[], Any]) -> int:
    """Return the number of calls of a function, and of elements visited by methods of sequences."""
    work = 0

    def note(frame: Any, event: str, called: Any) -> None:
        nonlocal work
        if event in ("call", "c_call"):
            work += 1
        if event == "call" and frame.f_code is CsvFile.parse.__code__:  # visits all columns
            work += 10 * len(frame.f_locals["self"].names)
        if event == "c_call" and called.__name__ in _VISITING:
            owner = called.__self__
            work += len(owner) if isinstance(owner, (list, tuple, str, bytes)) else 0

    sys.setprofile(note)
    try:
        run()
    except (treekit.TreekitError, ValueError):
        pass
    finally:
        sys.setprofile(None)
    return work


@cache
def entries() -> dict[str, bytes]:
    model = treekit.train({"x": [0.0, 1.0, 2.0, 3.0], "y": ["a", "b", "a", "b"]}, "y", seed=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.treekit")
        with zipfile.ZipFile(f"{folder}/m.treekit") as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def archive(*changed: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in changed:
            made.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def with_header(change: Callable[[dict[str, Any]], None]) -> bytes:
    header = json.loads(entries()["model.json"])
    change(header)
    return archive(*(entries() | {"model.json": json.dumps(header).encode()}).items())


def names(n: int, *, twice: bool) -> list[str]:
    """Return n names, the last of which may be repeated."""
    return [f"n{k}" for k in range(n)] + [f"n{n - 1}"] * twice


def columns(n: int, *, twice: bool) -> bytes:
    made = [{"name": name, "kind": "numeric", "levels": []} for name in names(n, twice=twice)]
    return with_header(lambda header: header["schema"].update(columns=made))


def members(n: int, *, twice: bool) -> bytes:
    made = archive(*((f"{k:06}", b"") for k in range(n)), ("999999", b""))
    return made.replace(b"999999", f"{n - 1:06}".encode()) if twice else made


def levels(n: int, *, twice: bool) -> bytes:
    made = [{"name": "x", "kind": "nominal", "levels": names(n, twice=twice)}]
    return with_header(lambda header: header["schema"].update(columns=made))


def classes(n: int, *, twice: bool) -> bytes:
    made = names(n, twice=twice)
    return with_header(lambda header: header["schema"].update(classes=made))


def header_keys(n: int, *, twice: bool) -> bytes:
    keys = json_keys(names(n, twice=twice)).encode()
    return archive(*(entries() | {"model.json": keys}).items())


def json_keys(keys: list[str]) -> str:
    return "{" + ",".join(f'"{key}":1' for key in keys) + "}"


@cache
def long_model(n: int) -> treekit.Model:
    rng = np.random.default_rng(0)
    table = {"x": np.arange(float(n)), "y": rng.normal(size=n)}
    return treekit.train(table, "y", task="regression", seed=0)


def rules_text(n: int) -> str:
    return "".join(long_model(n).rules().text())


def spoiled_text(n: int) -> str:
    """Return a text whose last rule is wrong."""
    kept, _, last = rules_text(n).rpartition("then")
    return f"{kept}than{last}"


def rules_json(n: int, folder: Path) -> str:
    return write_rules(long_model(n), folder / f"{n}.json").read_text()


def check_doubling(make: Callable[[int], Any], read: Callable[[Any], Any], n: int) -> None:
    small, large = (partial(read, make(size)) for size in (n, 4 * n))
    count_work(small)  # imports, caches
    few, many = count_work(small), count_work(large)
    assert many < 6 * few + 1000, f"{few:,} operations for {n}, {many:,} for {4 * n}"


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("made", [columns, members, levels, classes, header_keys])
def test_model_files_are_read_in_linear_time(made: Callable[..., bytes], twice: bool) -> None:
    check_doubling(partial(made, twice=twice), partial(parse_model_file, path="m.treekit"), 1000)


@pytest.mark.kernels
@pytest.mark.parametrize("read", [parse_rules, read_edited])
@pytest.mark.parametrize("made", [rules_text, spoiled_text])
def test_rule_texts_are_read_in_linear_time(
    read: Callable[[str], Any], made: Callable[[int], str]
) -> None:
    check_doubling(made, read, 200)


@pytest.mark.kernels
def test_json_rules_are_read_in_linear_time(tmp_path: Path) -> None:
    check_doubling(partial(rules_json, folder=tmp_path), read_json, 200)
    check_doubling(lambda n: json_keys(names(n, twice=True)), read_json, 500)


def train_briefly(path: Path) -> treekit.Model:
    return treekit.train(path, "y", max_depth=1, seed=0)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("cell", ["1", "2.50", "b", "01", "NA"])
@pytest.mark.parametrize("read", [train_briefly, treekit.columns])
def test_wide_csv_files_are_read_in_linear_time(
    tmp_path: Path, read: Callable[[Path], Any], cell: str, twice: bool
) -> None:
    def make(n: int) -> Path:
        path = tmp_path / f"{n}.csv"
        head = ",".join([*names(n, twice=twice), "y"])
        cells = [f"{own}," * (n + twice) for own in ("1.5", cell)]
        rows = "".join(f"{row}{label}\n" for row in cells for label in "ab")
        path.write_text(f"{head}\n{rows}")
        return path

    check_doubling(make, read, 100)


def test_table_declarations_are_read_in_linear_time(tmp_path: Path) -> None:
    def make(n: int) -> Path:
        path = tmp_path / f"{n}.json"
        table = {name: [0.0, 1.0] for name in names(n, twice=False)}
        path.write_text(treekit.columns(table).to_json())
        return path

    check_doubling(make, read_declaration, 100)


def test_quadratic_work_fails_the_doubling_check() -> None:
    def read(some: list[str]) -> str:
        return next(name for name in some if some.count(name) > 1)

    with pytest.raises(AssertionError, match="operations"):
        check_doubling(partial(names, twice=True), read, 100)
