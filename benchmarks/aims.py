"""Performance aims of treekit: the rows of the table of aims, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.frame import Benchmark, Figure, Measured, Result
from benchmarks.scaling import curves, exponents
from benchmarks.tables import fairness

__all__ = ["AIMS", "Aim", "Judged", "judged"]


@dataclass(frozen=True)
class Aim:
    """An upper bound of a figure, or of its ratio to a peer's.

    Attributes
    ----------
    row : str
        Name of the aim, used by notes.
    work : str
        Description of the work in the table.
    benchmark, case : str
        Source of the figure: the first case whose name contains the text `case`.
    figure, form, unit : str
        Key of the figure, and its format and unit in the table.
    most : float
        Upper bound of the ratio to `against` (round by round), or of the figure itself.
    against : str
        A side, or another figure of the same side, after a colon; empty: no ratio.
    side : str
    say : str
        The aim in words.
    fair : bool
        Whether the sides must have done the same work.
    """

    row: str
    work: str
    benchmark: str
    case: str
    most: float
    say: str
    against: str = ""
    side: str = "treekit"
    figure: str = "cpu"
    form: str = ".2f"
    unit: str = "s"
    fair: bool = True


@dataclass(frozen=True)
class Judged:
    """The outcome of an aim.

    Attributes
    ----------
    own : str
        treekit's figure, or the reason for its absence.
    peers : mapping of str to str
        Figures of the peers.
    ratio : float or None
        Value compared with the bound.
    verdict : str
    """

    own: str
    peers: Mapping[str, str] = field(default_factory=dict)
    ratio: float | None = None
    verdict: str = "not run"


def judged(aim: Aim, result: Result | None, benchmark: Benchmark) -> Judged:
    """Compare an aim with a result, which must have the benchmark's default sizes."""
    if result is None:
        return Judged("")
    usual = {name: one.default for name, one in benchmark.parameters.items()}
    ran = result.about.get("settings", usual)
    other = sorted(name for name, size in usual.items() if _plain(ran.get(name)) != _plain(size))
    if other:
        sizes = ", ".join(f"{name} {_plain(ran.get(name))}" for name in other)
        return Judged("", verdict=f"run at another size: {sizes}")
    if aim.figure == "exponent":
        return _slope(aim, result)
    if aim.figure == "speedup":
        return _speedup(aim, result)
    case = next((own for name, own in result.cases.items() if aim.case in name), None)
    if case is None or aim.side not in case:
        return Judged("")
    own = case[aim.side]
    if own.failed:
        return Judged(own.failed, verdict="**no**")
    peers = {side: _said(aim, m) for side, m in case.items() if not side.startswith("treekit")}
    value = Figure(aim.figure, "").of(own)
    if value is None:
        return Judged("", peers)
    ratio: float | None = value
    if aim.against.startswith(":"):
        other = Figure(aim.against[1:], "").of(own)
        ratio = None if not other else value / other
    elif aim.against:
        peer = case.get(aim.against, Measured())
        ratio = own.ratio(peer, aim.figure)
        why = fairness(own, peer) if aim.fair and ratio is not None else ""
        if why:
            return Judged(_said(aim, own), peers, ratio, f"not comparable: {why}")
    if ratio is None:
        return Judged(_said(aim, own), peers, None, "no peer")
    return Judged(_said(aim, own), peers, ratio, "yes" if ratio <= aim.most else "**no**")


def _plain(size: object) -> object:
    """Return a size as stored in a results file."""
    return list(size) if isinstance(size, tuple) else size


def _slope(aim: Aim, result: Result) -> Judged:
    found = exponents(result)
    if aim.side not in found:
        return Judged("")
    texts = {side: f"n^{slope:.2f}" for side, slope in found.items()}
    own, slope = texts.pop(aim.side), found[aim.side]
    peers = {side: text for side, text in texts.items() if not side.startswith("treekit")}
    return Judged(own, peers, slope, "yes" if slope <= aim.most else "**no**")


def _speedup(aim: Aim, result: Result) -> Judged:
    """Compare the wall time of two threads with that of one."""
    walls = curves(result, "wall")
    shares = {side: dict(line)[2] / dict(line)[1] for side, line in walls.items() if len(line) == 2}
    if aim.side not in shares:
        return Judged("")
    texts = {side: f"{1 / share:.2f} times as fast" for side, share in shares.items()}
    own, share = texts.pop(aim.side), shares[aim.side]
    peers = {side: text for side, text in texts.items() if not side.startswith("treekit")}
    return Judged(own, peers, share, "yes" if share <= aim.most else "**no**")


def _said(aim: Aim, measured: Measured) -> str:
    """Format a figure with its unit, or the reason for its absence."""
    value = Figure(aim.figure, "").of(measured)
    if measured.failed or value is None:
        return measured.failed or "–"
    return f"{value:{aim.form}} {aim.unit}".rstrip()


def _of_peers(
    row: str, work: str, benchmark: str, case: str, bounds: Mapping[str, tuple[float, str]], **more
) -> list[Aim]:
    """Make one aim for each peer."""
    return [
        Aim(f"{row}-{against}", work, benchmark, case, most, say, against, **more)
        for against, (most, say) in bounds.items()
    ]


_FOREST = "forest, 100 trees, 100,000 x 28, 2 classes"
_TREE = "one tree, 100,000 x 28"
_US = {"figure": "us", "unit": "us", "fair": False}

AIMS: tuple[Aim, ...] = (
    Aim("forest", _FOREST, "forest", "", 1 / 20, "a 20th of sklearn's", "sklearn"),
    Aim("forest-ydf", f"{_FOREST}, by entropy, as ydf splits", "forest", "", 1 / 7,
        "a seventh of ydf's", "ydf", "treekit entropy"),
    Aim("forest-exact", f"{_FOREST}, exact", "forest", "", 1 / 6, "a sixth of sklearn's",
        "sklearn", "treekit exact"),
    Aim("extra-trees", "extra trees, the same", "extra-trees", "", 1 / 3.5,
        "two sevenths of sklearn's", "sklearn"),
    Aim("many-classes", "forest, 50 trees, 100,000 x 54, 7 classes", "many-classes", "", 1 / 11,
        "an 11th of sklearn's", "sklearn"),
    Aim("fifty-classes", "one tree, 20,000 x 28, 50 classes", "fifty-classes", "", 1 / 3,
        "a third of sklearn's", "sklearn"),
    Aim("fifty-classes-exact", "one tree, 20,000 x 28, 50 classes, exact", "fifty-classes", "",
        1 / 3, "a third of sklearn's", "sklearn", "treekit exact"),
    Aim("tree", f"{_TREE}, full, histogram", "tree", "fully grown", 1 / 12,
        "a twelfth of sklearn's", "sklearn"),
    Aim("tree-exact", f"{_TREE}, full, exact", "tree", "fully grown", 1 / 4,
        "a quarter of sklearn's", "sklearn", "treekit exact"),
    Aim("tree-depth-8", f"{_TREE}, depth 8", "tree", "depth 8", 1.0,
        "LightGBM's, its preparation included", "lightgbm"),
    Aim("tree-million", "one tree, 1,000,000 x 28, full, by entropy, as ydf splits",
        "tree-million", "", 1 / 8, "an eighth of ydf's", "ydf", "treekit entropy"),
    Aim("diamonds-tree", "diamonds: tree, squared error", "diamonds", "one tree, squared", 1 / 3,
        "a third of sklearn's", "sklearn", form=".3f"),
    Aim("diamonds-forest", "diamonds: forest of 50, squared error", "diamonds",
        "forest of 50, squared", 1 / 5, "a fifth of sklearn's", "sklearn"),
    Aim("numbers-tree-absolute", "10,000 x 28: tree, absolute error", "numbers", "one tree", 1 / 5,
        "a fifth of sklearn's", "sklearn", form=".3f"),
    Aim("numbers-forest-absolute", "10,000 x 28: forest of 5, absolute error", "numbers",
        "forest of 5", 1 / 5, "a fifth of sklearn's", "sklearn"),
    Aim("diamonds-tree-absolute", "diamonds: tree, absolute error", "diamonds",
        "one tree, absolute", 1 / 5, "a fifth of sklearn's", "sklearn", form=".3f"),
    Aim("diamonds-forest-absolute", "diamonds: forest of 5, absolute error", "diamonds",
        "forest of 5, absolute", 1 / 5, "a fifth of sklearn's", "sklearn"),
    Aim("flights", "flights, 336,776 rows, mixed, cells missing, 50 trees", "flights", "", 1 / 5,
        "a fifth of sklearn's", "sklearn"),
    Aim("flights-ydf", "the same, by entropy, as ydf splits", "flights", "", 1 / 4,
        "a quarter of ydf's", "ydf", "treekit entropy"),
    Aim("memory", "memory above the data, forest of 100", "memory", "", 1.0,
        "the model and the code matrix", ":model and codes", figure="memory", form=".0f",
        unit="MB"),
    Aim("one-row", "one row from Python, 100 trees of depth 8", "one-row", "", 10.0,
        "10 us", side="treekit handle", form=".1f", **_US),
    Aim("batch", "100,000 rows, 100 trees of depth 8, one thread", "batch", "", 1 / 6,
        "a sixth of onnxruntime's", "onnxruntime", form=".2f", **_US),
    *_of_peers(
        "batch-deep", "rows, fully grown (5 million nodes), one thread", "batch-deep", "",
        {"treekit ONNX": (1 / 5, "a fifth of onnxruntime's"),
         "sklearn": (1 / 5, "a fifth of sklearn's")},
        form=".1f", **_US,
    ),
    *_of_peers(
        "one-tree-batch", "one tree of depth 8, batch", "one-tree-batch", "",
        {"sklearn": (1 / 2, "half of sklearn's"), "m2cgen": (1.0, "m2cgen's, compiled")},
        form=".4f", **_US,
    ),
    Aim("generated-c", "generated C, 100 trees of depth 8: row by row", "generated-c", "", 1.9,
        "1.9 us", side="treekit, float rows", figure="single", unit="us"),
    Aim("generated-c-batch", "the same, in batches", "generated-c", "", 0.8, "0.8 us",
        side="treekit, float rows", figure="batch", unit="us"),
    Aim("generated-c-compile", "the same, to compile", "generated-c", "", 1.5, "1.5 s",
        side="treekit, float rows", figure="compile"),
    Aim("generated-c-tree", "generated C, one full tree, row by row", "generated-c-tree", "", 1.0,
        "m2cgen's", "m2cgen", "treekit", "single", ".3f", "us", fair=False),
    Aim("generated-c-tree-compile", "the same, to compile", "generated-c-tree", "", 2.0, "2 s",
        figure="compile"),
    Aim("generated-c-deep", "generated C, 5 million nodes: write, compile, run",
        "generated-c-deep", "", 30.0, "30 s", figure="total", form=".1f"),
    Aim("generated-c-deep-memory", "the same, most memory", "generated-c-deep", "", 1024.0,
        "1 GB", figure="most", form=".0f", unit="MB"),
    Aim("cost-complexity", "cost-complexity path, 100,000 rows", "cost-complexity", "", 0.1,
        "a tenth of a fit", figure="share", unit="of a fit"),
    Aim("serving", "one row over HTTP, 8 clients: CPU of the server", "serving", "1 row",
        1 / 0.7, "1 / 0.7 of a constant's", "Starlette, a constant", figure="us", form=".0f",
        unit="us"),
    Aim("serving-tail", "the same, p99", "serving", "1 row", 3.0, "3 times p50", ":p50",
        figure="p99", form=".2f", unit="ms"),
    Aim("csv", "CSV, 1,000,000 x 28: tree of depth 8", "files", "tree of depth 8", 5.0, "5 s"),
    Aim("csv-memory", "the same, memory", "files", "tree of depth 8", 430.0, "430 MB",
        figure="memory", form=".0f", unit="MB"),
    Aim("model-file", "model file, forest of 20", "files", "model file", 5.0, "5 MB",
        figure="size", form=".1f", unit="MB"),
    Aim("model-file-load", "the same, loading", "files", "model file", 0.1, "0.1 s"),
    *(
        Aim(f"small-{row}", work, "small", case, 1.0, "sklearn's", "sklearn", figure="ms",
            form=".1f", unit="ms")
        for row, work, case in (
            ("iris", "one tree: iris, 150 x 4", "iris"),
            ("cancer", "one tree: breast cancer, 569 x 30", "fit of a tree: breast"),
            ("diabetes", "one tree: diabetes, 442 x 10", "diabetes"),
            ("grid", "GridSearchCV, 20 x 5 trees: breast cancer", "GridSearchCV"),
            ("row", "predict of a dataframe of one row", "of 1 x"),
            ("frame", "predict of a dataframe of 569 x 30", "of 569 x"),
        )
    ),
    Aim("tree-exact-memory", f"{_TREE}, full, exact: memory above the data", "tree",
        "fully grown", 1.2, "1.2 times sklearn's", "sklearn", "treekit exact", "memory", ".0f",
        "MB"),
    Aim("import", "import treekit", "startup", "import", 0.3, "0.3 s"),
    Aim("import-estimators", "import of the estimators", "startup", "import of the estimators",
        0.3, "0.3 s"),
    Aim("help", "treekit --help", "startup", "--help", 0.3, "0.3 s"),
    Aim("first-use", "treekit demo", "startup", "treekit demo", 5.0, "5 s", figure="wall"),
    Aim("first-fit", "the first fit of iris in a process", "startup", "fit of iris", 0.15, "0.15 s",
        figure="train"),
    Aim("first-training", "the first training of a forest on a machine", "startup",
        "training of a forest", 1.0, "1 s", figure="train"),
    Aim("first-oblique", "the first oblique tree on a machine", "startup",
        "training of an oblique tree", 1.0, "1 s", figure="train"),
    Aim("first-own", "the first training by an own criterion", "startup", "by an own criterion",
        1.0, "1 s", figure="train"),
    *(
        Aim(f"scaling-{axis}", f"cost over {axis}, {span}", f"scaling-{axis}", "", 1.15,
            "near linear: n^1.15", figure="exponent")
        for axis, span in (("rows", "10,000 to 10 million x 30"), ("features", "8 to 256"),
                           ("trees", "1 to 300"))
    ),
    Aim("scaling-classes", "cost over classes, 2 to 100, 20,000 x 28", "scaling-classes", "", 0.3,
        "n^0.3", figure="exponent"),
    Aim("scaling-threads", "two threads: wall seconds of one", "scaling-threads", "", 1 / 1.9,
        "1 / 1.9", figure="speedup"),
)  # fmt: skip
