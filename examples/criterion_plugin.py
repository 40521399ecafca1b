"""
Train with your own split criterion
===================================

Train with a custom split criterion that has a setting; export and verify.

::

    pip install treekit-plot
    python examples/criterion_plugin.py

Tsallis entropy lies between Shannon's entropy (q near 1) and the Gini index (q = 2). The
record below is passed directly to `treekit.train`. In a package with an entry point (see
plugins/treekit-hellinger) it can be used by name:
``treekit train ... --criterion tsallis --set criterion.q=1.5``.
"""

import tempfile
from pathlib import Path

from treekit_plot import plot

import treekit
from treekit.data import DEMO_TARGET, demo_table


def make(q):
    """Return the criterion's functions for one q; numba compiles them."""

    def impurity(stats):  # the weight of each class in a node
        weight = stats.sum()
        kept = 0.0
        for k in range(stats.shape[0]):
            kept += (stats[k] / weight) ** q
        return (1.0 - kept) / (q - 1.0)

    return treekit.CriterionFunctions(impurity=impurity)


TSALLIS = treekit.Criterion(
    "tsallis",
    "classification",
    make,
    settings=(treekit.Setting("q", 1.5, "order of the entropy", minimum=1.01, maximum=8.0),),
    summary="Tsallis entropy (1988)",
)


# %%
# Train a tree and a forest for three values of q
# -----------------------------------------------

for q in (1.01, 1.5, 2.0):
    settings = {"criterion.q": q, "max_leaves": 6, "seed": 0}
    model = treekit.train(demo_table(), DEMO_TARGET, criterion=TSALLIS, **settings)
    forest = treekit.train(
        demo_table(), DEMO_TARGET, criterion=TSALLIS, ensemble="forest", **settings
    )
    accuracy = forest.provenance["oob"]["accuracy"]
    print(f"q = {q}: {model.n_leaves} leaves; out-of-bag accuracy of a forest {accuracy:.3f}")

# %%
# The last tree:

picture = plot(model)

# %%
# Export and verify
# -----------------

with tempfile.TemporaryDirectory() as folder:
    artifacts = [
        treekit.export(model, target, Path(folder) / f"horses_{target}")[0]
        for target in ("onnx", "c", "python", "rules")
    ]
    report = treekit.verify(model, artifacts)
print(f"{len(artifacts)} artifacts equal to the model, bit for bit: {report.equal}")
assert report.equal
