"""Rules that say nothing new: linear combinations of the rules before them.

SIRUS keeps a rule only if it is no linear combination of more frequent ones and of the
constant (Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule
set for classification", Electronic Journal of Statistics 15, section 2.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["independent"]

_NOISE = 1e-10
"""What is left of a squared length by rounding alone, relative; a rule of ten million rows
that is one row apart from a combination of others leaves 1e-7."""


def independent(met: npt.NDArray[np.bool_], most: int | None = None) -> npt.NDArray[np.int64]:
    """The first rules that no linear combination of earlier ones and the constant gives.

    Gram-Schmidt, twice (Giraud, Langou and Rozložník 2005): each rule costs two products
    with the basis so far.

    Parameters
    ----------
    met : (rules, rows) bool
        In the order of preference.
    most : int, optional
        Stop when so many are kept.

    Returns
    -------
    (kept,) int64
        Ascending.
    """
    n_rules, n_rows = met.shape
    room = min(n_rules, max(n_rows - 1, 0), n_rules if most is None else most)
    basis = np.empty((room, n_rows))
    kept: list[int] = []
    for number, own in enumerate(met):
        if len(kept) == room:
            break
        known = basis[: len(kept)]
        rest = own - own.mean()
        for _ in range(2):
            rest -= (known @ rest) @ known
            rest -= rest.mean()
        left = float(rest @ rest)
        if left > _NOISE * max(float(np.count_nonzero(own)), 1.0):
            basis[len(kept)] = rest / np.sqrt(left)
            kept.append(number)
    return np.array(kept, dtype=np.int64)
