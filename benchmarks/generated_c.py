"""Generated C of one scikit-learn model: treekit's against m2cgen's and tl2cgen's.

    python -m benchmarks.generated_c                                  # the figures of README.md
    python -m benchmarks.generated_c --trees 3 --depth 3 --tree-rows 500 --rounds 1 --no-peers

A forest of 100 trees of depth 8, and one fully grown tree on 100,000 rows.  All
sides are made of the same fitted estimator, compiled by the same compiler with
the same flags, and asked the same rows in turn.  "Differing" are boundary rows, at
and beside thresholds, for which the source says another label than its own model:
the peers' is scikit-learn's, treekit's the one it reads from that; "other bits" are
rows with any other bit in a probability.  Peers that are
not installed, or take more than ``--seconds`` for a step, are told as such.  ONNX of
treekit and of skl2onnx is asked the same rows, and not timed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treekit.export import export
from treekit.interop import read_model
from treekit.model.ensemble import Model
from treekit.verify import make_probes

FLAGS = ("-std=c99", "-O2", "-fPIC")
PEERS = ("m2cgen", "tl2cgen")
GRAPHS = ("treekit ONNX", "skl2onnx")
OWN = {
    "treekit table": {"form": "table"},
    "treekit table, float rows": {"form": "table", "input": "float"},
    "treekit table, integers": {"form": "table", "arithmetic": "integer"},
    "treekit if_else": {"form": "if_else"},
}
TIMED = """
import resource, subprocess, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (most, most))
done = subprocess.run(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(done.returncode != 0)
"""
"""Runs a compiler within CPU seconds; prints what it took of them, and the most MB it held."""
ADAPTERS = {
    "double": """
#include "m.h"
size_t ask(const double *x, size_t rows, double *out)
{
    size_t row;
    for (row = 0; row < rows; row++)
        (void)m_predict(x + row * M_FEATURES, out + row * M_OUTPUTS);
    return rows;
}
size_t ask_batch(const double *x, size_t rows, double *out)
{
    return m_predict_batch(x, rows, NULL, out);
}
""",
    "m2cgen": """
#include <stddef.h>
void score(double *input, double *output);
size_t ask(double *x, size_t rows, double *out)
{
    size_t row;
    for (row = 0; row < rows; row++)
        score(x + row * %(features)d, out + row * %(outputs)d);
    return rows;
}
""",
    "tl2cgen": """
#include <stddef.h>
#include "header.h"
size_t ask(double *x, size_t rows, double *out)
{
    union Entry cells[%(features)d];
    size_t row;
    int i;
    for (row = 0; row < rows; row++) {
        for (i = 0; i < %(features)d; i++)
            cells[i].fvalue = x[row * %(features)d + i];
        predict(cells, 0, out + row * %(outputs)d);
    }
    return rows;
}
""",
}
ADAPTERS["float"] = ADAPTERS["double"].replace("const double *x", "const float *x")
ADAPTERS["uint32_t"] = ADAPTERS["double"].replace("const double *x", "const uint32_t *x")
ADAPTERS["uint32_t"] = ADAPTERS["uint32_t"].replace("double *out", "int32_t *out")


@dataclass
class Measured:
    """What one side took, or why it has no figures."""

    source: int = 0
    compile_s: float = 0.0
    compile_mb: float = 0.0
    compiled: int = 0
    single_us: list[float] = field(default_factory=list)
    batch_us: list[float] = field(default_factory=list)
    differing: int = -1
    other_bits: int = -1
    probes: int = 0
    failed: str = ""


@dataclass
class Side:
    """Compiled source of one side."""

    name: str
    library: ctypes.CDLL
    cells: str
    outputs: int
    measured: Measured

    def ask(self, rows: Any, function: str = "ask") -> Any:
        """(rows, outputs): what the source says."""
        out = np.zeros((len(rows), self.outputs), np.int32 if self.cells == "uint32_t" else float)
        call = getattr(self.library, function)
        call.restype = ctypes.c_size_t
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        call(rows.ctypes.data, len(rows), out.ctypes.data)
        return out

    def rows(self, rows: Any) -> Any:
        """Rows as the side wants them."""
        if self.cells == "double":
            return rows
        single = rows.astype(np.float32)
        if self.cells == "float":
            return single
        bits = single.view(np.uint32)
        key = self.library.m_key
        key.restype, key.argtypes = ctypes.c_uint32, (ctypes.c_uint32,)
        distinct, inverse = np.unique(bits, return_inverse=True)
        keys = np.array([key(b) for b in distinct.tolist()], np.uint32)
        return np.ascontiguousarray(keys[inverse].reshape(rows.shape))


def fitted(rows: int, trees: int, depth: int, tree_rows: int) -> dict[str, Any]:
    """The two estimators, by name."""
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier

    def table(n: int) -> Any:
        return make_classification(n, 28, n_informative=12, flip_y=0.05, random_state=0)

    forest = RandomForestClassifier(trees, max_depth=depth, random_state=0, n_jobs=2)
    # treelite reads forests only: one tree of all rows and columns is the same tree.
    tree = RandomForestClassifier(1, bootstrap=False, max_features=None, random_state=0)
    return {
        f"{trees} trees of depth {depth}": forest.fit(*table(rows)),
        f"one tree on {tree_rows} rows": tree.fit(*table(tree_rows)),
    }


def write_m2cgen(estimator: Any, folder: Path) -> None:
    """Source as m2cgen writes it."""
    import m2cgen

    sys.setrecursionlimit(20_000)
    (folder / "m.c").write_text(m2cgen.export_to_c(estimator), encoding="utf-8")


def write_tl2cgen(estimator: Any, folder: Path) -> None:
    """Source as tl2cgen writes it, in one file."""
    import tl2cgen
    import treelite

    tl2cgen.generate_c_code(treelite.sklearn.import_model(estimator), folder / "made", {})
    for name in ("main.c", "header.h"):
        (folder / "made" / name).rename(folder / name.replace("main", "m"))


def bounded(seconds: float, work: Callable[..., None], *arguments: Any) -> str:
    """Call in a process of its own; what went wrong, or nothing."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return f"more than {seconds:.0f} s to write"
    return "" if process.exitcode == 0 else "cannot write it"


def compiled(folder: Path, adapter: str, seconds: float, measured: Measured) -> ctypes.CDLL | None:
    """Compile the source, and an adapter beside it; None if it fails."""
    (folder / "adapter.c").write_text(adapter, encoding="utf-8")
    measured.source = sum(path.stat().st_size for path in folder.glob("m.*"))
    command = [sys.executable, "-c", TIMED, f"{seconds:.0f}", "gcc", *FLAGS, "-c", "m.c"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    measured.compile_s, measured.compile_mb = map(float, done.stdout.split())
    if done.returncode != 0:
        late = measured.compile_s > 0.9 * seconds
        measured.failed = f"more than {seconds:.0f} s to compile" if late else "does not compile"
        return None
    size = subprocess.run(["size", "m.o"], cwd=folder, check=True, capture_output=True, text=True)
    measured.compiled = int(size.stdout.splitlines()[1].split()[3])
    link = ["gcc", *FLAGS, "-shared", "adapter.c", "m.o", "-o", "m.so"]
    subprocess.run(link, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "m.so"))


def made_side(
    name: str, estimator: Any, model: Model, folder: Path, seconds: float
) -> Side | Measured:
    """Write and compile one side; only its measurements if that fails."""
    measured, cells = Measured(), "double"
    outputs = model.schema.n_values
    if name in PEERS:
        work = write_m2cgen if name == "m2cgen" else write_tl2cgen
        measured.failed = bounded(seconds, work, estimator, folder)
        if measured.failed:
            return measured
        adapter = ADAPTERS[name] % {"features": model.schema.n_features, "outputs": outputs}
    else:
        export(model, "c", folder / "m.c", **OWN[name])
        cells = "uint32_t" if "arithmetic" in OWN[name] else OWN[name].get("input", "double")
        adapter = ADAPTERS[cells]
    library = compiled(folder, adapter, seconds, measured)
    return measured if library is None else Side(name, library, cells, outputs, measured)


def of_graph(name: str, estimator: Any, model: Model, probes: Any, folder: Path) -> Measured:
    """Size and differing rows of an ONNX graph; each answers rows of float32, as it wants them."""
    import onnxruntime
    import skl2onnx

    single = probes.astype(np.float32)
    if name == "skl2onnx":
        own, shares = estimator.predict(single), estimator.predict_proba(single)
        content = skl2onnx.to_onnx(estimator, single[:1]).SerializeToString()
    else:
        rows = dict(zip(model.schema.names, probes.T, strict=True))
        own, shares = model.predict(rows), model.predict_proba(rows)
        content = export(model, "onnx", folder / "m.onnx")[0].read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    said, told = session.run(None, {session.get_inputs()[0].name: single})
    if isinstance(told, list):  # a map of label to share for each row
        told = np.array([list(row.values()) for row in told])
    return Measured(
        source=len(content),
        differing=int((said != own).sum()),
        other_bits=int((told != shares).any(axis=1).sum()),
        probes=len(probes),
    )


def timed(side: Side, rows: Any, function: str) -> float:
    """Microseconds of CPU a row."""
    start = time.process_time()
    side.ask(rows, function)
    return (time.process_time() - start) / len(rows) * 1e6


def compare(estimator: Any, arguments: argparse.Namespace, folder: Path) -> dict[str, Measured]:
    """All sides of one estimator."""
    model = read_model(estimator)
    probes = make_probes(model, arguments.probes, 0, arguments.probes).rows
    probes = np.where(np.abs(probes) < np.finfo(np.float32).max, probes, 0.0)  # peers know no NaN
    rng = np.random.default_rng(1)
    rows = rng.normal(scale=2.0, size=(arguments.score_rows, model.schema.n_features))
    told = {
        "treekit": model.predict_proba(dict(zip(model.schema.names, probes.T, strict=True))),
        "scikit-learn": estimator.predict_proba(probes),
    }
    names = [*OWN, *(() if arguments.no_peers else PEERS)]
    results: dict[str, Measured] = {}
    sides = []
    for name in names:
        place = folder / name.replace(" ", "_")
        place.mkdir(parents=True)
        if name in PEERS and importlib.util.find_spec(name) is None:
            results[name] = Measured(failed="not installed")
            continue
        made = made_side(name, estimator, model, place, arguments.seconds)
        results[name] = made.measured if isinstance(made, Side) else made
        if isinstance(made, Side):
            sides.append(made)
    for side in sides:
        own = told["scikit-learn" if side.name in PEERS else "treekit"]
        said = side.ask(side.rows(probes))
        side.measured.probes = len(probes)
        side.measured.differing = int((said.argmax(axis=1) != own.argmax(axis=1)).sum())
        if side.cells == "uint32_t":
            said = said / model.unit_total
        side.measured.other_bits = int((said != own).any(axis=1).sum())
    for name in GRAPHS[: 1 if arguments.no_peers else 2]:
        results[name] = of_graph(name, estimator, model, probes, folder)
    for _ in range(arguments.rounds):
        for side in sides:
            given = side.rows(rows)
            side.measured.single_us.append(timed(side, given, "ask"))
            if side.name not in PEERS:
                side.measured.batch_us.append(timed(side, given, "ask_batch"))
    return results


def show(title: str, results: dict[str, Measured]) -> None:
    """Print a table of one estimator's sides."""
    print(f"\n{title}\n")
    print(
        "| | source MB | compile s | compile MB | compiled KB "
        "| us a row | ratio | us in a batch | differing | other bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    first = next(m for m in results.values() if m.single_us)
    for name, m in results.items():
        if m.failed:
            print(f"| {name} | {m.source / 1e6:.2f} | {m.failed} | | | | | | | |")
            continue
        wrong = f"{m.differing} of {m.probes} | {m.other_bits}"
        if not m.single_us:
            print(f"| {name} | {m.source / 1e6:.2f} | | | | | | | {wrong} |")
            continue
        single = statistics.median(m.single_us)
        ratio = statistics.median(a / b for a, b in zip(m.single_us, first.single_us, strict=True))
        batch = f"{statistics.median(m.batch_us):.2f}" if m.batch_us else ""
        print(
            f"| {name} | {m.source / 1e6:.2f} | {m.compile_s:.2f} | {m.compile_mb:.0f} "
            f"| {m.compiled / 1024:.0f} | {single:.2f} | {ratio:.2f} | {batch} | {wrong} |"
        )


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Measured]]:
    """Measure, print, and return the measurements of each estimator's sides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows the forest is fitted on")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--tree-rows", type=int, default=100_000)
    parser.add_argument("--score-rows", type=int, default=20_000)
    parser.add_argument("--probes", type=int, default=50_000, help="most boundary rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=150.0, help="most for a step")
    parser.add_argument("--no-peers", action="store_true")
    given = parser.parse_args(arguments)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        estimators = fitted(given.rows, given.trees, given.depth, given.tree_rows)
        for number, (title, estimator) in enumerate(estimators.items()):
            results[title] = compare(estimator, given, Path(folder) / str(number))
            show(title, results[title])
    return results


if __name__ == "__main__":
    main()
