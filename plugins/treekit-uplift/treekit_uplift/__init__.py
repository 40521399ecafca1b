"""Treatment effects for treekit: the criterion `uplift` and curves to evaluate it.

P. Rzepakowski and S. Jaroszewicz, "Decision trees for uplift modeling with single
and multiple treatments", Knowledge and Information Systems 32, 2012, pp. 303-327.
"""

from treekit import Criterion, hookimpl
from treekit_uplift.criterion import EXEMPT, SETTINGS, make
from treekit_uplift.curves import auuc_score, qini_curve, qini_score, uplift_curve
from treekit_uplift.simulation import simulate
from treekit_uplift.task import UPLIFT

__all__ = ["auuc_score", "qini_curve", "qini_score", "simulate", "uplift_curve"]

treekit_contract = 2


@hookimpl
def treekit_criteria():
    """Register the criterion."""
    return [
        Criterion("uplift", UPLIFT, make, SETTINGS, "effect of a treatment", exempt=EXEMPT),
    ]
