"""Models of other libraries, their predictions, and rows that reveal a wrong branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FOLDER", "beside", "frame", "make_classes"]

FOLDER = Path(__file__).parent


def frame(n: int = 400, seed: int = 0, categories: bool = True) -> Any:
    """A data frame with missing numbers, few and many values, and two kinds of categories."""
    import pandas as pd

    random = np.random.default_rng(seed)
    columns = {
        "height": random.normal(size=n).astype(np.float32),
        "width": np.round(random.normal(size=n), 1).astype(np.float32),
        "rooms": random.integers(0, 6, n).astype(np.float32),
    }
    table = pd.DataFrame(columns)
    table.loc[random.random(n) < 0.2, "height"] = np.nan
    if categories:
        table["soil"] = pd.Categorical(random.choice(["clay", "loam", "sand", "silt", "*/"], n))
        table["zone"] = pd.Categorical(random.choice([3, 5, 9, 11], n))
        table.loc[random.random(n) < 0.1, "soil"] = np.nan
    return table


def make_classes(table: Any) -> npt.NDArray[np.int64]:
    """A class, 0 to 2, of each row of `frame`, that needs all of its columns."""
    code = (table["height"].fillna(0.3) > 0).astype(int) + (table["rooms"] > 2).astype(int)
    if "soil" in table:
        code += table["soil"].isin(["clay", "*/"]).astype(int)
        code += (table["zone"].astype(float) > 4).astype(int)
    return code.to_numpy() % 3


def beside(thresholds: Any, table: Any, columns: tuple[str, ...], infinite: bool = True) -> Any:
    """Rows of every threshold and its two float32 neighbours, in each of some columns.

    With them come NaN, both zeros, what is nearly 0, and the largest numbers; other
    columns are those of rows of `table`, which come first.
    """
    import pandas as pd

    at = np.unique(np.asarray(thresholds, dtype=np.float32))
    ends = np.array([-np.inf, np.inf], dtype=np.float32)
    special = [np.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-35, -1e-35, 1e-34, -1e-34, 3e38, -3e38]
    cells = np.concatenate(
        [at, *(np.nextafter(at, end) for end in ends), np.float32(special), ends[: 2 * infinite]]
    )
    random = np.random.default_rng(1)
    more = table.sample(len(cells), replace=True, random_state=2).reset_index(drop=True)
    for column in columns:
        more[column] = random.permutation(cells)
    both = pd.concat([table, more], ignore_index=True)
    return both.astype(dict(table.dtypes))
