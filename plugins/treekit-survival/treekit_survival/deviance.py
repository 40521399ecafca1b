"""The one-step deviance of proportional hazards (LeBlanc and Crowley 1992).

M. LeBlanc and J. Crowley, "Relative risk trees for censored survival data",
Biometrics 48 (1992), pp. 411-425. A node's hazard is that of all training rows
times a rate. The first step towards the full likelihood takes the rows' cumulative
hazard L(t) (Nelson 1972, Aalen 1978) as known. The number of events of a node is then
Poisson distributed with mean ``rate * sum(L)``, and the deviance is additive over rows,
which defines an impurity of nodes and a loss for pruners.

Statistics of a row: ``(1, event, L(t), event * log L(t))``.
"""

from __future__ import annotations

import math

from treekit import CriterionFunctions, Layout

__all__ = ["one_step", "relative_risk"]


def relative_risk(layout: Layout) -> CriterionFunctions:  # noqa: ARG001 - fixed by the contract
    """Return the criterion: decrease of the one-step deviance per weight, as rpart's ``exp``."""
    return CriterionFunctions(impurity=_impurity, order=_rate, loss=_loss)


def _impurity(stats):
    """Compute the deviance per weight of a node at its own rate."""
    if stats[1] <= 0.0 or stats[2] <= 0.0:
        return 0.0
    return 2.0 * max(0.0, -stats[3] - stats[1] * math.log(stats[1] / stats[2])) / stats[0]


def _rate(stats):
    """Return the ratio of events to those expected from the hazard of all rows."""
    # Rows censored before the first event carry no information: an average rate.
    return stats[1] / stats[2] if stats[2] > 0.0 else 1.0


def _loss(stats, judged):
    return one_step(stats[1], stats[2], judged)


def one_step(events, through, judged):
    """Compute the deviance of the rows `judged` (4,) at the rate ``events / through`` of a node.

    A node without events counts half an event, so that its rate is positive.
    """
    rate = max(events, 0.5) / through if through > 0.0 else 1.0
    missed = judged[3] + judged[1] * (math.log(rate) + 1.0)
    return 2.0 * (rate * judged[2] - missed)
