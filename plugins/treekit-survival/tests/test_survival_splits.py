"""Split scores compared with log-rank tests of the literature and R, and rpart's deviances."""

import csv
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_survival import ROSSI, SURVIVAL
from treekit_survival.deviance import relative_risk
from treekit_survival.samples import event_rate, k_samples, log_rank, two_samples
from treekit_survival.task import lay_out, lay_out_rates
from treekit_survival.timeline import make_timeline

import treekit
from treekit import TaskColumn


@pytest.fixture(scope="module")
def rossi():
    with ROSSI.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))


def chi_squared(rows):
    """Compute the two-sample log-rank statistic (Mantel 1966) of rows (time, event, group)."""
    apart = variance = 0.0
    for moment in sorted({time for time, event, _ in rows if event}):
        risk = [(t, e, g) for t, e, g in rows if t >= moment]
        n, n1 = len(risk), sum(g for _, _, g in risk)
        d = sum(e for t, e, _ in risk if t == moment)
        d1 = sum(e and g for t, e, g in risk if t == moment)
        apart += d1 - d * n1 / n
        if n > 1:
            variance += d * (n1 / n) * (1 - n1 / n) * (n - d) / (n - 1)
    return apart * apart / variance if variance > 1e-12 else 0.0


def counted(time, event, groups, bins=0):
    """Return the statistics of a node and of its branches."""
    time, event, groups = map(np.asarray, (time, event, groups))
    line = make_timeline(time.astype(float), event.astype(bool), None, bins)
    cells = line.place(time.astype(float), event.astype(bool))
    branches = np.unique(groups)
    children = [np.bincount(cells[groups == b], minlength=line.cells) for b in branches]
    return np.sum(children, axis=0).astype(float), np.array(children, float)


FOLLOWED = st.lists(
    st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 1)), min_size=2, max_size=40
).filter(lambda rows: any(e for _, e, _ in rows) and len({g for _, _, g in rows}) == 2)


@settings(deadline=None)
@given(FOLLOWED)
def test_score_of_two_branches_is_the_log_rank_statistic(rows):
    parent, children = counted(*zip(*rows, strict=True))
    expected = chi_squared(rows)
    assert two_samples(parent, children, 1.0) * len(rows) == pytest.approx(expected, abs=1e-9)
    assert k_samples(parent, children, 1.0) * len(rows) == pytest.approx(expected, abs=1e-9)


R_SURVDIFF = {
    ("age", (22.5,)): 11.098534760108103,
    ("prio", (3.5,)): 8.9018521930424725,
    ("fin", (0.5,)): 3.837569576549055,
    ("age", (20.5, 25.5, 30.5)): 23.088081214526774,
}
"""Chi-squared by ``survdiff(Surv(week, arrest) ~ cut)`` of R's survival 3.5-3."""


@pytest.mark.parametrize("cut", R_SURVDIFF)
def test_log_rank_scores_of_a_real_table_equal_survdiff_of_r(rossi, cut):
    column, edges = cut
    parent, children = counted(rossi["week"], rossi["arrest"], np.digitize(rossi[column], edges))
    expected = R_SURVDIFF[cut]
    assert k_samples(parent, children, 1.0) * 432 == pytest.approx(expected, rel=1e-12)
    if len(edges) == 1:
        assert two_samples(parent, children, 1.0) * 432 == pytest.approx(expected, rel=1e-12)


def test_empty_branch_does_not_change_the_score():
    time, event, group = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0], [0, 0, 1, 1, 2, 2]
    parent, children = counted(time, event, group)
    more = np.insert(children, 1, 0.0, axis=0)
    assert k_samples(parent, more, 1.0) == pytest.approx(k_samples(parent, children, 1.0))
    assert k_samples(parent, more, 1.0) > 0.0


@pytest.mark.parametrize("score", [two_samples, k_samples])
def test_equal_branches_and_rows_without_events_score_zero(score):
    parent, children = counted([1, 2, 3, 1, 2, 3], [1, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 1])
    assert score(parent, children, 1.0) == pytest.approx(0.0, abs=1e-15)
    quiet = children.copy()
    quiet[:, 1::2] = 0.0
    assert score(quiet.sum(axis=0), quiet, 1.0) == 0.0
    assert score(np.zeros(63), np.zeros((2, 63)), 1.0) == 0.0


def test_scores_do_not_depend_on_the_unit_of_weights():
    parent, children = counted([1, 2, 2, 3, 5], [1, 1, 1, 0, 1], [0, 0, 1, 1, 1])
    whole = two_samples(parent, children, 1.0)
    assert two_samples(parent * 0.01, children * 0.01, 0.01) == pytest.approx(whole)


@given(st.floats(0.05, 1.0), st.floats(1.1, 5.0))
def test_categories_are_ordered_by_hazard(hazard, times):
    bins = np.arange(1, 32)
    rates = []
    for own in (hazard, hazard * times):
        left = np.exp(-own * np.append(0, bins) / 10)
        stats = np.zeros(63)
        stats[0], stats[1::2] = left[-1], (left[:-1] - left[1:])[::-1]
        rates.append(event_rate(stats))
    assert rates[0] < rates[1]


def test_category_without_rows_at_risk_has_event_rate_zero():
    assert event_rate(np.eye(63)[62]) == 0.0
    assert event_rate(np.zeros(63)) == 0.0


# --- Proportional hazards.


def train(rossi, criterion, **chosen):
    table = {name: cells for name, cells in rossi.items() if name not in ("race", "wexp")}
    own = {"criterion": criterion, "criterion.event": "arrest", "criterion.bins": 0}
    return treekit.train(table, "week", **own, seed=0, **chosen)


def test_relative_risk_tree_equals_rpart(rossi):
    # rpart 4.1.19: rpart(Surv(week, arrest) ~ ., method = "exp", parms = list(shrink = 0),
    # control = rpart.control(maxdepth = 2, cp = 0, minbucket = 20, minsplit = 40)); censored
    # rows all left after the last event, where rpart does not interpolate hazards.
    model = train(rossi, "relative_risk", max_depth=2, min_weight_leaf=20)
    tree, names = model.trees[0], model.schema.names
    inner = np.flatnonzero(tree.feature >= 0)
    found = {
        (names[tree.feature[node]], float(tree.threshold[node])): tree.gain[node]
        * tree.weight[node]
        for node in inner
    }
    assert found == pytest.approx(
        {
            ("age", 19.5): 19.2160955166949208,
            ("paro", 0.5): 2.9832809824340103,
            ("prio", 2.5): 7.7831631245683717,
        },
        rel=1e-12,
    )


def column(name, values):
    return TaskColumn(name, np.asarray(values, dtype=np.float64))


def test_node_deviances_equal_rpart(rossi):
    columns = {"event": column("arrest", rossi["arrest"])}
    week = column("week", rossi["week"])
    layout = lay_out_rates(week, columns, occurred="", bins=10)
    rows = layout.place(week, columns)
    functions = relative_risk(layout)
    young = rossi["age"] < 19.5
    for stats, deviance, rate in (
        (rows.sum(axis=0), 503.470304905591092, 1.0),
        (rows[~young].sum(axis=0), 393.382178787166481, 0.81912622804579371),
        (rows[young].sum(axis=0), 90.872030601731055, 2.18338562287446880),
    ):
        assert functions.impurity(stats) * stats[0] == pytest.approx(deviance, rel=1e-12)
        assert functions.loss(stats, stats) == pytest.approx(deviance, rel=1e-12)
        assert functions.order(stats) == pytest.approx(rate, rel=1e-12)


def losses(rossi):
    """Return the loss of each criterion, with statistics of each row."""
    week, columns = column("week", rossi["week"]), {"event": column("arrest", rossi["arrest"])}
    cells = lay_out(week, columns, occurred="", bins=0)
    placed = np.eye(cells.size)[cells.place(week, columns)]
    rates = lay_out_rates(week, columns, occurred="", bins=0)
    yield log_rank(cells).loss, placed
    yield relative_risk(rates).loss, rates.place(week, columns)


def test_losses_of_both_criteria_are_equal_and_additive_over_rows(rossi):
    old, found = rossi["age"] > 25, []
    for loss, rows in losses(rossi):
        node, judged = rows[old].sum(axis=0), rows[:100]
        own = loss(node, judged.sum(axis=0))
        assert own == pytest.approx(sum(loss(node, row) for row in judged), rel=1e-9)
        found.append(own)
        assert loss(judged.sum(axis=0), judged.sum(axis=0)) < own
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_loss_of_a_node_without_events_assumes_half_an_event(rossi):
    (in_cells, cells), (in_sums, sums) = losses(rossi)
    quiet, loud = rossi["arrest"] == 0, rossi["arrest"] == 1
    node, judged = sums[quiet][:50].sum(axis=0), sums[loud][:50].sum(axis=0)
    rate = 0.5 / node[2]
    expected = 2 * (rate * judged[2] - judged[3] - 50 * (math.log(rate) + 1))
    assert in_sums(node, judged) == pytest.approx(expected, rel=1e-12)
    node, judged = cells[quiet][:50].sum(axis=0), cells[loud][:50].sum(axis=0)
    assert in_cells(node, judged) == pytest.approx(expected, rel=1e-12)


def test_equal_rows_have_zero_deviance(rossi):
    week, columns = column("week", rossi["week"]), {"event": column("arrest", rossi["arrest"])}
    layout = lay_out_rates(week, columns, occurred="", bins=0)
    for row in layout.place(week, columns)[::20]:
        assert relative_risk(layout).impurity(row * 3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("criterion", ["log_rank", "relative_risk"])
def test_cost_complexity_pruning_removes_most_leaves_of_a_survival_tree(rossi, criterion):
    grown = train(rossi, criterion, min_weight_leaf=5)
    pruned = train(rossi, criterion, min_weight_leaf=5, pruner="cost_complexity")
    assert pruned.n_leaves < grown.n_leaves / 4
    risk = pruned.provenance["pruner"]["sequence"]["cv_risk"]
    assert min(risk) < risk[0]


def test_the_settings_of_both_tasks_are_the_same():
    assert [setting.name for setting in SURVIVAL.settings] == ["event", "occurred", "bins"]
