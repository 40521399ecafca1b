"""The one-step deviance of proportional hazards (LeBlanc and Crowley 1992).

M. LeBlanc and J. Crowley, "Relative risk trees for censored survival data",
Biometrics 48 (1992), pp. 411-425.  A node's hazard is that of all training rows
times a rate; the first step towards the full likelihood takes the rows' cumulative
hazard L(t) (Nelson 1972, Aalen 1978) as known.  The events of a node are then a
Poisson count with mean ``rate * sum(L)``, and the deviance adds up over rows, so that
nodes have an impurity and pruners a loss.

Statistics of a row: ``(1, event, L(t), event * log L(t))``.
"""

from __future__ import annotations

import math

from treekit import CriterionFunctions, Layout

__all__ = ["one_step", "relative_risk"]


def relative_risk(layout: Layout) -> CriterionFunctions:  # noqa: ARG001 - no layout is alike here
    """Decrease of the one-step deviance, per weight; as in rpart's ``method="exp"``."""
    return CriterionFunctions(impurity=_impurity, order=_rate, loss=_loss)


def _impurity(stats):
    """Deviance of a node at its own rate, per weight."""
    if stats[1] <= 0.0 or stats[2] <= 0.0:
        return 0.0
    return 2.0 * max(0.0, -stats[3] - stats[1] * math.log(stats[1] / stats[2])) / stats[0]


def _rate(stats):
    """Events for each one that the hazard of all rows lets expect."""
    # Rows that left before the first event say nothing: an average rate.
    return stats[1] / stats[2] if stats[2] > 0.0 else 1.0


def _loss(stats, judged):
    return one_step(stats[1], stats[2], judged)


def one_step(events, through, judged):
    """Deviance of the rows `judged` (4,) at the rate of a node with so many events.

    A node without events counts half a one, so that no event is impossible there.
    """
    rate = max(events, 0.5) / through if through > 0.0 else 1.0
    missed = judged[3] + judged[1] * (math.log(rate) + 1.0)
    return 2.0 * (rate * judged[2] - missed)
