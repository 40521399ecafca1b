"""
Draw decision regions
=====================

Compare the regions of a tree with those of oblique splits, on two columns of the watermelon book.

::

    python examples/decision_regions.py
"""

import csv
import tempfile
from pathlib import Path

from boundary import Drawing, drawn
from isolated import EXAMPLES

import treekit

TABLE = EXAMPLES / "tables" / "watermelon" / "watermelon_3.0_alpha_en.csv"

with TABLE.open(encoding="utf-8") as stream:
    rows = list(csv.DictReader(stream))
points = {name: [float(row[name]) for row in rows] for name in ("density", "sugar")}
classes = ["yes", "no"]
melons = points | {"good": [row["good"] for row in rows]}
marks = [classes.index(label) for label in melons["good"]]

# %%
# Splits on one column
# --------------------

straight = treekit.train(melons, "good", classes=classes, criterion="entropy")
picture = Drawing(drawn(straight, points, marks, "Splits on one column"))
print(straight.n_leaves, "leaves")

# %%
# Oblique splits
# --------------
#
# A split may be a weighted sum of columns.

oblique = treekit.train(melons, "good", classes=classes, splitter="oblique", seed=0)
picture = Drawing(drawn(oblique, points, marks, "Oblique splits"))
print(oblique.n_leaves, "leaves")

# %%
# Sums are computed in a fixed order in double precision, so that exports stay equal.

with tempfile.TemporaryDirectory() as folder:
    files = [
        treekit.export(oblique, target, Path(folder) / "melons")[0]
        for target in ("onnx", "c", "python")
    ]
    assert treekit.verify(oblique, files).equal
print("ONNX, C and Python equal the oblique tree, bit for bit")
