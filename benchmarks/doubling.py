"""Readers: CPU time of inputs of doubled size; twice the size should take twice the time."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.apart import Failed, ask
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["READERS", "measure_doubling"]

_FACTORS = (1, 2, 4, 8)


def _names(n: int) -> list[str]:
    """Return n names, the last of which is repeated: the whole input is read before the error."""
    return [*(f"n{k}" for k in range(n)), f"n{n - 1}"]


def _tree(n: int) -> Any:
    """Return a tree of n leaves."""
    import treekit

    table = {"x": np.arange(float(n)), "y": np.random.default_rng(0).normal(size=n)}
    return treekit.train(table, "y", task="regression", splitter="exact", seed=0)


def _edited_model(n: int, change: Callable[[dict[str, Any], int], None]) -> bytes:
    """Return a model file of two leaves with a changed header."""
    with tempfile.TemporaryDirectory() as folder:
        _tree(2).save(f"{folder}/m.treekit")
        with zipfile.ZipFile(f"{folder}/m.treekit") as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["model.json"])
    change(header, n)
    entries["model.json"] = json.dumps(header).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def _add_columns(header: dict[str, Any], n: int) -> None:
    columns = [{"name": name, "kind": "numeric", "levels": []} for name in _names(n)]
    header["schema"]["columns"] = columns


def make_wide_file(n: int) -> bytes:
    """Return a model file of n columns and another one of the last name, which is refused."""
    return _edited_model(n, _add_columns)


def _add_levels(header: dict[str, Any], n: int) -> None:
    header["schema"]["columns"] = [{"name": "x", "kind": "nominal", "levels": _names(n)}]


def _model_file(n: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _tree(n).save(f"{folder}/m.treekit")
        return Path(folder, "m.treekit").read_bytes()


def _read_model(data: bytes) -> None:
    from treekit.model.model_file import parse_model_file

    parse_model_file(data, Path("m.treekit"))


def _rules_json(n: int) -> str:
    from treekit.documents.files import write_rules

    with tempfile.TemporaryDirectory() as folder:
        return write_rules(_tree(n), Path(folder, "rules.json")).read_text()


def _read_rules_json(text: str) -> None:
    from treekit.documents.json_rules import read_json

    read_json(text)


def _read_rules(text: str) -> None:
    from treekit.rules.read_text import parse_rules

    parse_rules(text)


def _csv(rows: int, columns: int) -> bytes:
    cells = ",".join(["1.25"] * columns)
    head = ",".join([*(f"x{k}" for k in range(columns)), "y"])
    return "\n".join([head, *(f"{cells},{'ab'[k % 2]}" for k in range(rows)), ""]).encode()


def _read_csv(data: bytes) -> None:
    import treekit

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        path.write_bytes(data)
        treekit.columns(path)


def _tensors(n: int) -> bytes:
    inputs = [{"name": f"n{k}", "datatype": "FP64", "shape": [1], "data": [1.0]} for k in range(n)]
    return json.dumps({"inputs": inputs}).encode()


def _read_tensors(body: bytes) -> None:
    from treekit.serve.protocol.messages import decode_tensors, read_request

    decode_tensors(*read_request(body))


READERS: dict[str, tuple[Callable[[int], Any], Callable[[Any], None], int]] = {
    "model file, nodes": (_model_file, _read_model, 10_000),
    "model file, columns, the last name twice": (
        make_wide_file, _read_model, 5_000,
    ),
    "model file, levels, the last twice": (
        lambda n: _edited_model(n, _add_levels), _read_model, 20_000,
    ),
    "text of rules": (lambda n: "".join(_tree(n).rules().text()), _read_rules, 500),
    "JSON of rules": (_rules_json, _read_rules_json, 500),
    "CSV, rows": (lambda n: _csv(n, 5), _read_csv, 50_000),
    "CSV, columns": (lambda n: _csv(10, n), _read_csv, 500),
    "request, tensors": (_tensors, _read_tensors, 5_000),
}  # fmt: skip
"""Function that makes an input of size n, the function that reads it, and the smallest n."""


def measure_doubling(reader: str, size: int, repeats: int) -> dict[str, float]:
    """Measure the least CPU milliseconds of reading each size; errors of the input are expected."""
    from treekit import TreekitError

    make, read, _ = READERS[reader]
    inputs = [make(size * factor) for factor in _FACTORS]
    times = []
    for content in [inputs[0], *inputs]:  # imports, and compiles kernels
        taken = []
        for _ in range(repeats):
            start = time.process_time()
            with contextlib.suppress(TreekitError, ValueError):
                read(content)
            taken.append(time.process_time() - start)
        times.append(1e3 * min(taken))
    figures = dict(zip(map(str, _FACTORS), times[1:], strict=True))
    last, first = max(times[-1], 1e-9), max(times[1], 1e-9)
    return figures | {"power": math.log2(last / first) / math.log2(_FACTORS[-1])}


def _run(options: Options) -> Iterator[Entry]:
    for _ in range(options.rounds):
        for reader, (_, _, size) in READERS.items():
            given = reader, max(size // options.smaller, 2), options.repeats
            try:
                found = ask(measure_doubling, *given, apart=options.apart, limit=options.limit)
            except Failed as why:
                yield Entry(reader, "treekit", failed=str(why))
            else:
                yield Entry(f"{reader} (n = {size:,})", "treekit", found)


register(
    Benchmark(
        "doubling", "readers of files and requests: time of inputs of doubled size", _run,
        (
            *(Figure(str(k), f"CPU ms, {k if k > 1 else ''}n", ".1f") for k in _FACTORS),
            Figure("power", "power of n", ".2f"),
        ),
        {
            "repeats": Parameter(5, 1, "readings of each input; the fastest counts"),
            "smaller": Parameter(1, 250, "divide all sizes by this number"),
        },
        rounds=1,
    )
)  # fmt: skip
