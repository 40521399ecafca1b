"""The sample table of the package; its source is in `adult.md`."""

import csv
import gzip
from importlib.resources import files

import numpy as np

__all__ = ["adult"]

NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")


def adult():
    """Load 4,000 people of the census of 1994, with whether they earn more than 50,000 dollars.

    Returns
    -------
    dict
        13 columns and the target `income`, "<=50K" or ">50K"; missing values are None.
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
