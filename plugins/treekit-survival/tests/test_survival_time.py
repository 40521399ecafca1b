"""Time bins compared with the Kaplan-Meier life table, and the reading of event labels."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_survival import ROSSI, kaplan_meier
from treekit_survival.task import MOST_BINS, lay_out, lay_out_rates
from treekit_survival.timeline import make_timeline

from treekit import TaskColumn
from treekit.errors import DataError


def column(name, cells):
    if isinstance(cells[0], str | bool):
        levels = tuple(sorted(set(cells)))
        return TaskColumn(name, np.array([levels.index(c) for c in cells], np.int32), levels)
    return TaskColumn(name, np.asarray(cells, dtype=np.float64))


def laid_out(time, event, *, bins=0, occurred="", lay_out=lay_out):
    target, columns = column("t", time), {"event": column("e", event)}
    layout = lay_out(target, columns, occurred=occurred, bins=bins)
    return layout, layout.place(target, columns)


def said(layout, cells, weights=None):
    """Return the values of a leaf of all rows by name."""
    stats = np.bincount(cells, weights, layout.size).astype(float)
    return dict(zip(layout.names, layout.answer(stats[None])[0].tolist(), strict=True))


@pytest.fixture(scope="module")
def rossi():
    with ROSSI.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))


def test_a_leaf_predicts_the_curve_of_survfit(rossi):
    layout, cells = laid_out(rossi["week"], rossi["arrest"])
    # summary(survfit(Surv(week, arrest) ~ 1)), R's survival 3.5-3
    by_r = {
        "S(1)": 0.99768518518518523,
        "S(10)": 0.96527777777777768,
        "S(20)": 0.90740740740740722,
        "S(26)": 0.875,
        "S(40)": 0.80324074074074059,
        "S(52)": 0.73611111111111083,
    }
    curve = said(layout, cells)
    assert {name: curve[name] for name in by_r} == pytest.approx(by_r, rel=1e-12)


def product_limit(rows, moment):
    """Compute the estimate of Kaplan and Meier 1958 by hand."""
    share = 1.0
    for t in sorted({t for t, e in rows if e and t <= moment}):
        share *= 1 - sum(e for u, e in rows if u == t) / sum(u >= t for u, _ in rows)
    return share


FOLLOWED = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40).filter(
    lambda rows: any(e for _, e in rows)
)


@settings(deadline=None)
@given(FOLLOWED)
def test_bins_at_every_event_time_give_the_kaplan_meier_curve(rows):
    time, event = zip(*rows, strict=True)
    layout, cells = laid_out(time, event)
    curve = said(layout, cells)
    moments = sorted({t for t, e in rows if e})
    assert layout.names == ("risk", *(f"S({t})" for t in moments))
    hazard = mortality = 0.0
    for t in moments:
        assert curve[f"S({t})"] == pytest.approx(product_limit(rows, t), abs=1e-12)
        hazard += sum(e for u, e in rows if u == t) / sum(u >= t for u, _ in rows)
        mortality += hazard
    assert curve["risk"] == pytest.approx(mortality)  # Ishwaran et al. 2008
    times, survival = kaplan_meier(time, event)
    assert times.tolist() == moments
    assert survival == pytest.approx([curve[f"S({t})"] for t in moments])


@settings(deadline=None)
@given(FOLLOWED, st.integers(0, 8))
def test_cumulative_hazard_summed_over_rows_is_the_number_of_events(rows, bins):
    time, event = map(np.array, zip(*rows, strict=True))
    line = make_timeline(time.astype(float), event, None, bins)
    stats = np.bincount(line.place(time.astype(float), event), minlength=line.cells).astype(float)
    assert line.lived(stats) @ stats == pytest.approx(event.sum())


def test_bins_contain_equal_shares_of_the_events_and_keep_the_curve():
    rng = np.random.default_rng(2)
    time, gone = rng.exponential(size=3000), rng.exponential(1.5, size=3000)
    event = time <= gone
    time = np.minimum(time, gone)
    exact, every = laid_out(time, event.astype(float), bins=MOST_BINS)
    layout, cells = laid_out(time, event.astype(float), bins=20)
    odd = np.bincount(cells, minlength=layout.size)[1::2]
    assert np.ptp(odd[odd > 0]) <= 1
    assert (odd > 0).sum() == 20
    curve = said(layout, cells)
    ends = np.array([float(name[2:-1]) for name in layout.names[1:]])
    moments, survival = kaplan_meier(time, event)
    true = survival[np.searchsorted(moments, ends, "right") - 1]
    apart = np.abs(np.array(list(curve.values())[1:]) - true)
    assert apart[:-1].max() < 0.004  # the last bin has very few rows
    assert curve["risk"] == pytest.approx(said(exact, every)["risk"], rel=0.04)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30
    ).filter(lambda rows: any(e and w for _, e, w in rows)),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_integer_weights_equal_repeated_rows(rows, bins, rng):
    time, event, w = map(np.array, zip(*rows, strict=True))
    one = make_timeline(time.astype(float), event, w.astype(float), bins)
    order = np.repeat(np.arange(len(w)), w)
    rng.shuffle(order)
    other = make_timeline(time[order].astype(float), event[order], None, bins)
    for name in ("edges", "middles", "moments"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.unit == other.unit == 1.0


@pytest.mark.parametrize("lay_out", [lay_out, lay_out_rates])
def test_layout_does_not_depend_on_the_order_of_rows(rossi, lay_out):
    w = np.random.default_rng(1).random(432)
    order = np.random.default_rng(0).permutation(432)
    made = []
    for rows in (np.arange(432), order):
        week = TaskColumn("week", rossi["week"][rows], weights=w[rows])
        columns = {"event": TaskColumn("arrest", rossi["arrest"][rows])}
        layout = lay_out(week, columns, occurred="", bins=7)
        made.append((layout, layout.place(week, columns)))
    (one, placed), (other, mixed) = made
    assert one.names == other.names
    assert np.array_equal(placed[order], mixed)
    stats = np.abs(np.random.default_rng(2).normal(size=(3, one.size)))
    assert np.array_equal(one.answer(stats), other.answer(stats))
    if one.extra:
        assert one.extra[0] == other.extra[0] == pytest.approx(w.mean())
        assert np.array_equal(one.extra[1], other.extra[1])


def test_unit_of_relative_weights_is_their_mean():
    line = make_timeline(np.array([1.0, 2.0]), np.array([True, True]), np.array([0.2, 0.4]), 0)
    assert line.unit == pytest.approx(0.3)


def test_censored_rows_are_at_risk_for_all_or_none_of_their_bin():
    time = np.array([1.0, 2.0, 3.0, 4.0, 1.5, 2.0, 3.5, 9.0])
    event = np.array([True, True, True, True, False, False, False, False])
    line = make_timeline(time, event, None, 1)
    assert (line.edges.tolist(), line.middles.tolist()) == ([4.0], [2.0])
    assert (line.place(time, event) - line.empty).tolist() == [1, 1, 1, 1, 2, 0, 0, 0]


def test_event_after_the_last_training_time_counts_as_censored():
    line = make_timeline(np.array([1.0, 2.0]), np.array([True, True]), None, 0)
    late = line.place(np.array([2.0, 2.5]), np.array([True, True])) - line.empty
    assert late.tolist() == [1, 0]


def test_number_of_cells_grows_in_powers_of_two():
    def cells(n):
        return make_timeline(np.arange(1.0, n + 1), np.ones(n, bool), None, 0).cells

    assert {cells(n) for n in (1, 30, 31)} == {63}
    assert {cells(n) for n in (32, 63)} == {127}
    assert cells(MOST_BINS) <= 4096


@pytest.mark.parametrize(
    ("labels", "occurred"),
    [
        ([0, 1, 0, 1], ""),
        ([1, 2, 1, 2], ""),
        ([False, True, False, True], ""),
        (["no", "yes", "no", "yes"], ""),
        (["Alive", "Dead", "Alive", "Dead"], ""),
        (["censored", "event", "censored", "event"], ""),
        ([2, 3, 2, 3], "3"),
        (["lost", "relapse", "died", "relapse"], "relapse"),
        ([0, 2, 1, 2], "2"),
        ([True, False, True, False], "false"),
    ],
)
def test_event_labels_are_recognised_or_set_by_occurred(labels, occurred):
    for of in (lay_out, lay_out_rates):
        layout, placed = laid_out([5, 3, 4, 1], labels, occurred=occurred, lay_out=of)
        assert layout.names == ("risk", "S(1)", "S(3)")
    assert placed[:, 1].tolist() == [0, 1, 0, 1]


def test_test_rows_may_contain_the_event_value_absent_from_training():
    layout, _ = laid_out([5, 3], [1, 1])
    later = {"event": column("e", [0, 1])}
    assert layout.place(column("t", [3, 3]), later).tolist() == [60, 61]
    with pytest.raises(DataError, match=r"holds 2\.0 in row 1"):
        layout.place(column("t", [3, 3]), {"event": column("e", [1, 2])})


@pytest.mark.parametrize(
    ("time", "event", "chosen", "message"),
    [
        ([1, -2], [0, 1], {}, "time 't' is -2 in row 1"),
        ([1, 2], [0, 0], {}, "no row has an event: column 'e' holds 0"),
        ([1, 2], ["no", "no"], {}, "no row has an event"),
        ([1, 2], ["here", "gone"], {}, "'gone', 'here': no recognised label"),
        ([1, 2, 3], [0, 1, 2], {}, "no recognised label of an event; set criterion.occurred"),
        ([1, 2], [0, 1], {"occurred": "dead"}, "occurred is 'dead', but event column 'e' holds"),
        (range(MOST_BINS + 1), [1] * (MOST_BINS + 1), {"bins": 0}, "too many event times .* 2001"),
    ],
)
def test_unreadable_tables_are_refused(time, event, chosen, message):
    for of in (lay_out, lay_out_rates):
        with pytest.raises(DataError, match=message):
            laid_out(list(time), event, lay_out=of, **chosen)


def test_relative_risk_scales_the_cumulative_hazard_of_all_rows():
    time, event = [2, 3, 3, 5, 8, 9], [1, 1, 0, 1, 0, 0]
    layout, rows = laid_out(time, event, lay_out=lay_out_rates)
    hazard = np.cumsum([1 / 6, 1 / 5, 1 / 3])
    (all_rows,) = layout.answer(rows.sum(axis=0)[None])
    assert all_rows == pytest.approx([hazard.sum(), *np.exp(-hazard)])
    twice = rows.sum(axis=0) * [1, 2, 1, 1]
    assert layout.answer(twice[None])[0] == pytest.approx([2 * hazard.sum(), *np.exp(-2 * hazard)])
    assert layout.answer(np.zeros((1, 4)))[0].tolist() == [0, 1, 1, 1]


def test_times_in_output_names_are_the_shortest_exact_numbers():
    layout, _ = laid_out([0.1, 2.0, 1e300], [1, 1, 1])
    assert layout.names == ("risk", "S(0.1)", "S(2)", "S(1e+300)")
