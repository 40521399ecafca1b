"""Rows set aside: a share of them, or each part in its turn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError

__all__ = ["split_folds", "split_off"]

Ids = npt.NDArray[np.uint32]


def split_off(ids: Ids, share: float, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """The rows to train on and a random `share` of them to hold out, each ascending.

    Raises
    ------
    DataError
        If either would be empty.
    """
    size = round(share * len(ids))
    if not 0 < size < len(ids):
        raise DataError(
            f"{len(ids)} rows leave none on one side of a hold-out of {share}; "
            "change the pruner's setting holdout"
        )
    mixed = rng.permutation(ids)
    return np.sort(mixed[size:]), np.sort(mixed[:size])


def split_folds(
    ids: Ids, k: int, rng: np.random.Generator, cells: npt.NDArray[np.uint32] | None
) -> list[tuple[Ids, Ids]]:
    """The rows to train on and those to hold out, ascending, for each of k folds.

    Random, and with `cells` stratified: folds differ by at most one row in
    size and in the rows of each cell (Kohavi 1995, *A study of cross-validation
    and bootstrap*, found such folds the better ones in bias and in variance).

    Parameters
    ----------
    cells : (all rows,) uint32, or None
        The class of each row.

    Raises
    ------
    DataError
        If there are fewer rows than folds.
    """
    if len(ids) < k:
        raise DataError(f"{len(ids)} rows cannot make {k} folds; lower the pruner's folds")
    mixed = rng.permutation(ids)
    if cells is not None:
        mixed = mixed[np.argsort(cells[mixed], kind="stable")]
    fold = np.arange(len(mixed)) % k
    return [(np.sort(mixed[fold != part]), np.sort(mixed[fold == part])) for part in range(k)]
