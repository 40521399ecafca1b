"""
Train with missing values
=========================

Compare three ways to treat missing cells, without imputation, and export them.

::

    pip install treekit-plot
    python examples/missing_values.py

Most columns of the table of horses have empty cells; 143 of 368 horses have no entry for the
abdomen. Each model stores what it does with such cells, and so does each exported file.
"""

import tempfile
from pathlib import Path

from treekit_plot import plot

import treekit
from treekit.data import DEMO_TARGET, demo_table

# %%
# A learned branch
# ----------------
#
# By default, a split sends missing cells to the branch that fits them best. A split can also
# ask whether a cell is missing.

tree = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
picture = plot(tree)

# %%
# Surrogate splits
# ----------------
#
# CART replaces a missing cell by another column that splits the rows in a similar way.

cart = treekit.train(demo_table(), DEMO_TARGET, algorithm="cart", max_leaves=4, seed=0)
picture = plot(cart)

# %%
# Fractional instances
# --------------------
#
# C4.5 sends a row down every branch, in proportion to the rows whose cell is known.

c45 = treekit.train(demo_table(), DEMO_TARGET, algorithm="c45", max_depth=2, seed=0)
picture = plot(c45)

# %%
# Predict a horse about which nothing is known
# --------------------------------------------

nothing = {name: [None] for name in tree.schema.names}
for name, model in (("branch", tree), ("surrogates", cart), ("fractions", c45)):
    no, yes = model.predict_proba(nothing)[0]
    print(f"{name}: {no:.3f} no, {yes:.3f} yes")

# %%
# Export: missing values are part of the model
# --------------------------------------------

with tempfile.TemporaryDirectory() as folder:
    for model in (tree, cart, c45):
        files = [
            treekit.export(model, target, Path(folder) / "horses")[0]
            for target in ("onnx", "c", "python")
        ]
        assert treekit.verify(model, files).equal
print("ONNX, C and Python equal all three models, bit for bit")
