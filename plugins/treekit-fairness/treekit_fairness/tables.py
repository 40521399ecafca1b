"""The table that comes with the package; `adult.md` beside it says where it is from."""

import csv
import gzip
from importlib.resources import files

import numpy as np

__all__ = ["adult"]

NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")


def adult():
    """4,000 people of the census of 1994: whether they earn more than 50,000 dollars.

    Returns
    -------
    dict
        13 columns and the target `income`, "<=50K" or ">50K"; None is missing.
    """
    content = gzip.decompress((files(__package__) / "adult.csv.gz").read_bytes())
    rows = list(csv.DictReader(content.decode("utf-8").splitlines()))
    return {
        name: np.array(
            [float(row[name]) if name in NUMBERS else row[name] or None for row in rows],
            dtype=float if name in NUMBERS else object,
        )
        for name in rows[0]
    }
