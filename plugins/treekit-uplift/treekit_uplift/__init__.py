"""Treatment effects for treekit: the criterion `uplift` and curves to evaluate it.

P. Rzepakowski and S. Jaroszewicz, "Decision trees for uplift modeling with single
and multiple treatments", Knowledge and Information Systems 32, 2012, pp. 303-327.
"""

import importlib

from treekit import Criterion, hookimpl
from treekit_uplift.criterion import EXEMPT, SETTINGS, make
from treekit_uplift.task import UPLIFT

__all__ = ["auuc_score", "qini_curve", "qini_score", "simulate", "uplift_curve"]

treekit_contract = 2

_MODULE_OF = {
    "auuc_score": "curves",
    "qini_curve": "curves",
    "qini_score": "curves",
    "simulate": "simulation",
    "uplift_curve": "curves",
}


@hookimpl
def treekit_criteria():
    """Register the criterion."""
    return [
        Criterion("uplift", UPLIFT, make, SETTINGS, "effect of a treatment", exempt=EXEMPT),
    ]


def __getattr__(name):
    # Imported on first use: treekit imports this module at start-up, and NumPy is slow to import.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
