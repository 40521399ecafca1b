"""Fixed-point leaf values, links and thresholds, compared with exact fractions."""

from __future__ import annotations

import itertools
import math
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import treekit
from tests.reference.evaluate import to_float32
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.export.onnx.sums import _split_limbs
from treekit.model import links
from treekit.model.builder import build_tree, leaf, multiway, threshold
from treekit.model.fixed_point import (
    MASS,
    MASS_BITS,
    MAX_TREES,
    UNIT_BUDGET,
    apportion,
    count_tree_units,
    fit_regression_grid,
    floor_to_dtype,
    list_grid_limits,
    multiply_by_mass,
    place_threshold,
    split_wide_units,
    to_double_threshold,
)
from treekit.model.links import EXP_LIMIT, exp, sigmoid, softmax
from treekit.model.model import Model, make_model
from treekit.model.scoring import sum_leaf_values
from treekit.rules import parse_rules

# ---------------------------------------------------------------- portable

FLOAT32_MAX = float(np.finfo(np.float32).max)
DTYPES = ["float32", "float64"]
EXTREMES = {
    "float32": [
        0.0,
        -0.0,
        1.0,
        2.0**-149,
        -(2.0**-149),
        2.0**-126,
        -(2.0**-126),
        FLOAT32_MAX,
        -FLOAT32_MAX,
    ],
    "float64": [
        0.0,
        -0.0,
        1.0,
        5e-324,
        -5e-324,
        2.0**-1022,
        -(2.0**-1022),
        sys.float_info.max,
        -sys.float_info.max,
    ],
}

dtypes = st.sampled_from(DTYPES)
trees = st.integers(1, MAX_TREES)
doubles = st.floats(allow_nan=False, allow_infinity=False)
singles = st.floats(allow_nan=False, allow_infinity=False, width=32)


def numbers(dtype: str) -> st.SearchStrategy[float]:
    return st.one_of(singles if dtype == "float32" else doubles, st.sampled_from(EXTREMES[dtype]))


def next_up(x: float, dtype: str) -> float:
    if dtype == "float64":
        return math.nextafter(x, math.inf)
    with np.errstate(over="ignore"):
        return float(np.nextafter(np.float32(x), np.float32(np.inf)))


def is_of(x: float, dtype: str) -> bool:
    return dtype == "float64" or to_float32(x) == x


def largest_remainder(weights: list[int], units: int) -> list[int]:
    total = sum(weights)
    exact = [Fraction(w * units, total) for w in weights]
    share = [math.floor(q) for q in exact]
    # sorted() is stable: equal remainders stay in class order.
    by_remainder = sorted(range(len(weights)), key=lambda k: share[k] - exact[k])
    for k in by_remainder[: units - sum(share)]:
        share[k] += 1
    return share


# Votes


@given(trees, dtypes)
def test_votes_of_a_forest_fit_the_exact_integers_of_the_float_type(n_trees, dtype):
    share = count_tree_units(n_trees, dtype)
    assert share >= 1
    assert share * n_trees <= UNIT_BUDGET[dtype] < (share + 1) * n_trees


@pytest.mark.parametrize("n_trees", [0, -1, MAX_TREES + 1])
def test_a_number_of_trees_outside_the_bounds_is_refused(n_trees):
    with pytest.raises(ModelError, match=str(MAX_TREES)):
        count_tree_units(n_trees, "float32")


whole_weights = st.lists(st.integers(0, 2**26), min_size=1, max_size=12).filter(any)


@given(whole_weights, trees, dtypes)
@example([2**30 - 2, 1], 1, "float64")
@example([1, 1, 1], 1, "float32")
@example([0, 5, 0, 5], 3, "float64")
def test_apportioned_units_follow_the_largest_remainder_method(weights, n_trees, dtype):
    units = count_tree_units(n_trees, dtype)
    assert apportion([weights], units)[0].tolist() == largest_remainder(weights, units)


@given(st.integers(2, 9), st.integers(1, 2**20), trees)
def test_equal_remainders_are_given_to_the_lower_class(n_classes, weight, n_trees):
    units = count_tree_units(n_trees, "float32")
    low, more = divmod(units, n_classes)
    expected = [low + 1] * more + [low] * (n_classes - more)
    assert apportion([[weight] * n_classes], units)[0].tolist() == expected


any_weights = st.lists(
    st.one_of(
        st.floats(0, allow_infinity=False),
        st.sampled_from([0.0, 5e-324, 1e-310, 1e308, sys.float_info.max, 2.0**30, 2.0**53]),
    ),
    min_size=1,
    max_size=8,
).filter(any)


@given(any_weights, trees, dtypes)
def test_apportioned_units_sum_to_the_total_and_keep_the_order_of_weights(weights, n_trees, dtype):
    units = count_tree_units(n_trees, dtype)
    share = apportion([weights], units)[0].tolist()
    assert sum(share) == units
    assert min(share) >= 0
    # Weights that round to the same whole number tie, and the lower class may be the lighter.
    for (a, i), (b, k) in itertools.permutations(zip(weights, share, strict=True), 2):
        assert i >= k - 1 or a < b


@given(any_weights, trees)
def test_apportioned_units_of_fractional_weights_are_near_the_exact_share(weights, n_trees):
    units = count_tree_units(n_trees, "float32")
    total = sum(Fraction(w) for w in weights)
    for w, share in zip(weights, apportion([weights], units)[0].tolist(), strict=True):
        assert abs(share - Fraction(w) * units / total) <= 1 + Fraction(
            units * 2 * len(weights), 2**26
        )


@given(st.lists(whole_weights.map(lambda w: (w * 4)[:4]).filter(any), min_size=2, max_size=5))
def test_apportioned_units_of_a_leaf_do_not_depend_on_other_leaves(rows):
    together = apportion([*rows, [0.3, 0.1, 0.2, 0.4]], 2**24)[:-1]
    alone = np.concatenate([apportion([row], 2**24) for row in rows])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [math.nan, 1], [math.inf, 1]])
def test_weights_that_are_not_shares_are_refused(weights):
    with pytest.raises(ModelError, match="class weights"):
        apportion([weights], 2**24)


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_votes_sum_exactly_in_float32_in_any_order(n_trees, random):
    units = count_tree_units(n_trees, "float32")
    votes = [random.randint(0, units) for _ in range(n_trees)]
    for _ in range(3):
        random.shuffle(votes)
        total = np.add.accumulate(np.array(votes, dtype=np.float32))[-1]  # one by one, in order
        assert int(total) == sum(votes)


# Thresholds


@given(doubles, dtypes)
@example(1e300, "float32")
@example(-1e300, "float32")
@example(-0.0, "float64")
@example(-FLOAT32_MAX, "float32")
@example(2.0**-150, "float32")
@example(-(2.0**-150), "float32")
def test_floor_to_is_the_largest_number_not_above(value, dtype):
    floor = float(floor_to_dtype(value, dtype))
    assert is_of(floor, dtype)
    assert floor <= value < next_up(floor, dtype)
    assert math.copysign(1, floor) == 1 or floor < 0  # never -0.0


@st.composite
def neighbours(draw):
    """Two values of one type, often a few ulps apart."""
    dtype = draw(dtypes)
    left = draw(numbers(dtype))
    if draw(st.booleans()):
        right = left
        for _ in range(draw(st.integers(1, 5))):
            right = next_up(right, dtype)
    else:
        right = draw(numbers(dtype))
    assume(math.isfinite(right) and left < right)
    return left, right, dtype


@given(neighbours())
@example((-FLOAT32_MAX, FLOAT32_MAX, "float32"))
@example((-sys.float_info.max, sys.float_info.max, "float64"))
@example((-5e-324, sys.float_info.max, "float64"))
@example((5e-324, sys.float_info.max, "float64"))
@example((-sys.float_info.max, -5e-324, "float64"))
@example((-(2.0**-149), FLOAT32_MAX, "float32"))
@example((3 * 5e-324, 6 * 5e-324, "float64"))
@example((-6 * 5e-324, -3 * 5e-324, "float64"))
@example((1.0, 1.0 + 3 * 2.0**-52, "float64"))
@example((-0.0, 5e-324, "float64"))
def test_threshold_between_is_the_largest_number_not_above_the_midpoint(pair):
    left, right, dtype = pair
    t = float(place_threshold(left, right, dtype))
    middle = (Fraction(left) + Fraction(right)) / 2
    assert is_of(t, dtype)
    assert left <= t < right
    assert Fraction(t) <= middle < Fraction(next_up(t, dtype))
    assert math.copysign(1, t) == 1 or t < 0


def test_threshold_between_takes_arrays():
    t = place_threshold([0.0, 1.0, -3.0], [1.0, 4.0, -2.0], "float32")
    assert t.tolist() == [0.5, 2.5, -2.5]


@given(st.one_of(singles, st.sampled_from(EXTREMES["float32"])))
@example(FLOAT32_MAX)
@example(-FLOAT32_MAX)
@example(0.0)
@example(-0.0)
@example(2.0**-149)
@example(-(2.0**-149))
@example(2.0**-126)
@example(1.0)
def test_double_threshold_is_the_last_double_that_rounds_to_the_left(t):
    last = float(to_double_threshold(t))
    assert math.isfinite(last)
    assert to_float32(last) <= t
    assert to_float32(math.nextafter(last, math.inf)) > t


@given(st.one_of(singles, st.sampled_from(EXTREMES["float32"])), doubles, st.integers(-4, 4))
def test_testing_the_double_threshold_is_testing_the_rounded_input(t, elsewhere, steps):
    last = float(to_double_threshold(t))
    up = next_up(t, "float32")
    down = -next_up(-t, "float32")
    probes = [elsewhere, math.inf, -math.inf, 0.0, -0.0, to_float32(elsewhere)]
    between = t / 2 + up / 2 if math.isfinite(up) else last
    for probe in (t, last, up, down, between):
        targets = [math.copysign(math.inf, steps)] * abs(steps)
        probes += itertools.accumulate(targets, math.nextafter, initial=probe)
    for x in probes:
        assert (to_float32(x) <= t) == (x <= last)


def test_double_threshold_is_exact_for_random_bit_patterns():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    t = bits.view(np.float32)
    t = t[np.isfinite(t)]
    last = to_double_threshold(t)
    with np.errstate(over="ignore"):
        assert np.all(last.astype(np.float32) <= t)
        assert np.all(np.nextafter(last, np.inf).astype(np.float32) > t)


# Regression


@given(trees)
def test_limbs_of_a_float32_grid_sum_exactly_over_all_trees(n_trees):
    limit = list_grid_limits(n_trees, "float32")[0]
    base = 2 << (2**24 // n_trees).bit_length() - 1
    for v in (limit, -limit, base // 2, -(base // 2), base // 2 - 1, limit - base // 2):
        limbs = [int(limb) for limb in _split_limbs(np.array(v), n_trees)]
        assert len(limbs) <= 2
        assert sum(limb * base**k for k, limb in enumerate(limbs)) == v
        assert all(n_trees * abs(limb) <= 2**24 for limb in limbs)


@given(trees)
@example(1)
def test_sums_of_a_float64_grid_are_exact(n_trees):
    limit, wide = list_grid_limits(n_trees, "float64")
    assert n_trees * limit <= 2**53 < n_trees * (limit + 1)
    assert n_trees * wide <= 2**60 < n_trees * (wide + 1)
    assert list_grid_limits(n_trees, "float32")[1:] == [limit, wide]


@given(trees, st.sampled_from(["float32", "float64"]), st.data())
def test_wide_sums_are_split_into_exact_doubles(n_trees, dtype, data):
    limit = list_grid_limits(n_trees, dtype)[-1]
    units = [limit, -limit, *data.draw(st.lists(st.integers(-limit, limit), max_size=5))]
    high, low = split_wide_units(np.array(units)[:, None]).T.tolist()
    assert [a + b for a, b in zip(high, low, strict=True)] == units
    for parts in (high, low):  # the largest sums of any sign
        most = max(map(abs, parts)) * n_trees
        assert int(float(most)) == most
    total = sum(units)
    assert float(sum(high)) + float(sum(low)) == float(total)


masses = st.sampled_from([1, MASS - 1, MASS]) | st.integers(1, MASS)


@given(trees, masses, st.data())
def test_split_numbers_are_exact_in_doubles_and_64_bit_integers(n_trees, mass, data):
    limit = list_grid_limits(n_trees, "float32")[-1]
    sizes = st.integers(-limit, limit) | st.integers(-(2**30), 2**30)
    units = [limit, -limit, 2**30 - 1, *data.draw(st.lists(sizes, max_size=5))]
    wanted = [v * mass // MASS for v in units]
    assert multiply_by_mass(np.array(units), mass, MASS_BITS).tolist() == wanted
    assert [multiply_by_mass(v, mass, MASS_BITS) for v in units] == wanted
    high, rest = np.hsplit(split_wide_units(np.array(units)[:, None], 2**36), 2)
    middle, low = split_wide_units(rest, 2**30).T.tolist()
    for v, a, b, c in zip(wanted, high[:, 0].tolist(), middle, low, strict=True):
        assert int(float(c) * mass) == c * mass  # the product is exact in double
        assert a // MASS * mass + b // MASS * mass + c * mass // MASS == v
        # So are the sums over trees, of any sign, and that of the lower two parts.
        assert a % 2**36 == 0
        assert (abs(a) + 2**35) * n_trees <= 2 ** (53 + 12)
        assert (abs(b) + abs(c)) * n_trees < 2**53


@given(st.integers(-(2**24), 2**24), masses)
def test_votes_are_multiplied_without_rounding(units, mass):
    assert multiply_by_mass(units, mass, 0) == units * mass
    assert multiply_by_mass(np.array([units]), mass, 0).tolist() == [units * mass]


@given(st.integers(1, 200), st.randoms(use_true_random=False))
def test_float32_sums_of_the_limbs_are_exact_in_any_order(n_trees, random):
    limit = list_grid_limits(n_trees, "float32")[0]
    values = [limit] + [
        random.choice([-1, 1]) * random.randint(0, limit) for _ in range(n_trees - 1)
    ]
    for _ in range(3):
        random.shuffle(values)
        limbs = np.stack(_split_limbs(np.array(values), n_trees)).astype(np.float32)
        low, high = np.add.accumulate(limbs, axis=1)[:, -1].tolist()  # one by one, in order
        assert high * (2 << (2**24 // n_trees).bit_length() - 1) + low == sum(values)


largest_values = st.one_of(
    st.floats(0, allow_infinity=False),
    st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 2.0, 1e9, 1e308, sys.float_info.max]),
)


@given(largest_values, trees, dtypes)
@example(sys.float_info.max, 1, "float32")
@example(sys.float_info.max, 1, "float64")
@example(1e308, 100, "float32")
@example(5e-324, 1, "float32")
@example(0.0, 1, "float64")
def test_grid_represents_the_largest_value_within_half_a_step(largest, n_trees, dtype):
    grid = fit_regression_grid(largest, list_grid_limits(n_trees, dtype)[0])
    top, bottom = grid.to_grid([largest, -largest]).tolist()
    assert top == -bottom
    assert top <= grid.bound <= grid.limit
    assert math.isfinite(math.ldexp(float(top), grid.exponent))
    error = abs(Fraction(top) * Fraction(2) ** grid.exponent - Fraction(largest))
    # The few numbers that would round up to 2**1024 are held within one step.
    steps = 1 if largest > 1.7e308 else Fraction(1, 2)
    assert error <= steps * Fraction(2) ** grid.exponent


@given(st.floats(2.0**-900, allow_infinity=False), trees, dtypes)
def test_grid_is_the_finest_that_represents_the_largest_value(largest, n_trees, dtype):
    grid = fit_regression_grid(largest, list_grid_limits(n_trees, dtype)[0])
    finer = Fraction(2) ** (grid.exponent - 1)
    assert Fraction(largest) / finer > grid.limit


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), dtypes)
def test_a_regression_value_is_the_mean_of_the_grid_values_rounded_once(values, dtype):
    grid = fit_regression_grid(max(map(abs, values)), list_grid_limits(len(values), dtype)[0])
    total = int(grid.to_grid(values).sum())
    exact = Fraction(total, len(values)) * Fraction(2) ** grid.exponent
    assert math.ldexp(total / len(values), grid.exponent) == float(exact)


def test_outlier_does_not_reduce_the_precision_of_other_values():
    grid = fit_regression_grid(1e9, list_grid_limits(100, "float32")[0])
    v = grid.to_grid([1e9, 3.25, -0.5])
    back = np.ldexp(v.astype(np.float64), grid.exponent)
    np.testing.assert_allclose(back, [1e9, 3.25, -0.5], rtol=0, atol=1e-3)


@pytest.mark.parametrize("largest", [math.inf, math.nan])
def test_leaf_values_that_are_not_finite_are_refused(largest):
    with pytest.raises(ModelError, match="finite"):
        fit_regression_grid(largest, 2**53)


# ---------------------------------------------------------------- links
# Models of sums and links, as boosting makes them: portable to the last bit.

GOLDEN_EXP = [
    "0x1.5bf0a8b14576ap+1",
    "0x1.78b56362cef38p-2",
    "0x1.1aec7b35a00d4p+0",
    "0x1.0772c096d61b7p-25",
    "0x1.efe2e2bf329a4p+60",
    "0x1.c3714f17ae742p+433",
    "0x1.300ff6c7c2e28p-938",
]
GOLDEN_SOFTMAX = ["0x1.32ac289f4acd1p-4", "0x1.aa5560ecf5569p-7", "0x1.d301256862d10p-1"]
COLUMNS = (Column("x"), Column("c", "nominal", ("a", "b", "d")))


def boosted(classes=("no", "yes"), link="softmax", n_trees=20, seed=0, dtype="float32") -> Model:
    """A base score and trees that each add to one class, or to the number."""
    task = "classification" if classes else "regression"
    schema = Schema(COLUMNS, task=task, classes=classes, dtype=dtype)
    rng = np.random.default_rng(seed)

    def say(k):
        value = np.zeros(schema.n_values)
        value[k] = rng.normal() * 10.0 ** rng.integers(-3, 1)
        return leaf(value.tolist(), weight=float(rng.integers(1, 9)))

    roots = [leaf(([0.0] + [0.25] * (schema.n_values - 1)) if classes else 1e4)]
    for tree in range(n_trees):
        k = 1 if len(classes) == 2 else tree % schema.n_values
        at = float(np.float32(rng.normal()))
        branches = {level: say(k) for level in "abd"}
        roots.append(threshold("x", at, multiway("c", branches), say(k), missing=tree % 2))
    trees = [build_tree(root, schema, margins=True) for root in roots]
    return make_model(schema, trees, combine="sum", link=link)


def rows_of(n=500, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    return np.stack([x, rng.integers(-1, 4, n)], axis=1)


def margins_of(model, rows):
    """The definition, in plain arithmetic: leaf values added up as fractions."""
    exponent = model.exponent
    return np.array(
        [[math.ldexp(u, exponent) for u in row] for row in sum_leaf_values(model, rows).tolist()]
    )


MODELS = {
    "two classes": boosted,
    "four classes": lambda: boosted(("a", "b", "c", "d"), n_trees=21),
    "one against the rest": lambda: boosted((1, 2, 3), "sigmoid"),
    "number": lambda: boosted((), "identity"),
    "count": lambda: boosted((), "exp", seed=3),
    "share": lambda: boosted((), "sigmoid", dtype="float64"),
}


def true_exp(x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(x).exp()


def test_exp_is_within_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-EXP_LIMIT, EXP_LIMIT, 2000), rng.normal(size=2000) * 3])
    for value, said in zip(x.tolist(), exp(x).tolist(), strict=True):
        assert abs(Decimal(said) - true_exp(value)) <= 2 * Decimal(math.ulp(said))


def test_exp_is_1_at_zero_and_constant_beyond_its_limits():
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    beyond = exp(np.array([EXP_LIMIT, 1e300, -EXP_LIMIT, -1e300]))
    assert beyond[0] == beyond[1] > 1e304
    assert 0 < beyond[2] == beyond[3] < 1e-303


def test_link_functions_equal_their_definition():
    rng = np.random.default_rng(2)
    m = rng.normal(size=(300, 4)) * 10
    said = softmax(m)
    for row, shares in zip(m.tolist(), said.tolist(), strict=True):
        parts = [true_exp(v) for v in row]
        for part, share in zip(parts, shares, strict=True):
            assert abs(Decimal(share) / (part / sum(parts)) - 1) < Decimal("1e-14")
    assert np.allclose(sigmoid(m) + sigmoid(-m), 1.0, rtol=0, atol=1e-15)
    assert sigmoid(np.array([0.0, 1e4, -1e4])).tolist()[:2] == [0.5, 1.0]


def test_softmax_adds_in_class_order():
    m = np.random.default_rng(3).normal(size=(200, 9))
    for row, said in zip(m, softmax(m).tolist(), strict=True):
        t = exp(row - row.max()).tolist()
        total = list(itertools.accumulate(t))[-1]
        assert said == [one / total for one in t]


@pytest.mark.parametrize("name", MODELS)
def test_predictions_equal_the_link_of_the_margins(name):
    model = MODELS[name]()
    rows = rows_of()
    table = {"x": rows[:, 0], "c": [dict(enumerate("abd")).get(c) for c in rows[:, 1]]}
    margins = margins_of(model, rows)
    if model.schema.task == "classification":
        best = [model.schema.classes[k] for k in margins.argmax(axis=1)]
        assert model.predict(table).tolist() == best
        link = softmax if model.link == "softmax" else sigmoid
        assert (model.predict_proba(table) == link(margins)).all()
    else:
        link = {"identity": np.array, "exp": exp, "sigmoid": sigmoid}[model.link]
        assert (model.predict(table) == link(margins)[:, 0]).all()


@pytest.mark.parametrize("name", MODELS)
def test_margins_equal_sums_of_leaf_values_within_a_step_per_tree(name):
    model = MODELS[name]()
    rows = rows_of(200)
    said = margins_of(model, rows)
    value = np.zeros((len(rows), model.schema.n_values))
    from treekit.model.scoring import leaf_indices

    ends = leaf_indices(model, rows)
    for t, tree in enumerate(model.trees):
        value += tree.value[ends[:, t]]
    step = 2.0**model.exponent
    assert np.abs(said - value).max() <= model.n_trees * step / 2 + 1e-9 * step
    assert step < 1e-10


@pytest.mark.parametrize("name", MODELS)
def test_model_file_keeps_combine_and_link(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "m.treekit")
    again = treekit.load(tmp_path / "m.treekit")
    assert (again.combine, again.link, again.exponent) == ("sum", model.link, model.exponent)
    assert (again.units == model.units).all()


@pytest.mark.parametrize("name", MODELS)
def test_executed_rule_text_gives_the_margins_with_equal_bits(name, tmp_path):
    model = MODELS[name]()
    text = str(model.rules())
    assert "combine  sum" in text
    again = parse_rules(text)
    assert str(again) == text
    assert (again.units == model.rules().units).all()
    path = treekit.export(model, "rules", tmp_path / "m")
    report = treekit.verify(model, path)
    assert report.equal, str(report)


def test_rule_of_a_boosted_model_states_its_added_margin():
    first, second, *_ = boosted().rules()
    assert first.answers[0].margins == (0.0, 0.25)
    assert first.label is None
    assert "then yes: 0.25" in str(boosted().rules())
    assert second.answers[0].margins[0] == 0.0


def test_invalid_rule_texts_of_margins_are_refused():
    text = str(boosted().rules())
    for old, new in (
        ("then yes: 0.25", "then yes: 0.25, yes: 0.25"),
        ("then yes: 0.25", "then yes: 0"),
        ("link     softmax", "link     probit"),
        ("combine  sum", "combine  product"),
        ("link     softmax", "link     sigmoid"),
    ):
        assert old in text
        with pytest.raises(ModelFileError):
            parse_rules(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"link": "exp"}, "does not fit"),
        ({"link": "identity"}, "does not fit"),
        ({"link": "cloglog"}, "unknown link"),
        ({"combine": "product"}, "unknown combination of trees"),
        ({"missing": "fractional"}, "does not support missing='fractional'"),
        ({"voting": "hard"}, "hard voting"),
        ({"costs": np.array([[0, 1], [1, 0]])}, "hard voting and costs"),
    ],
)
def test_values_that_do_not_fit_a_sum_are_refused(changes, words):
    model = boosted()
    policies = {"combine": "sum", "link": "softmax"} | changes
    with pytest.raises(ModelError, match=words):
        make_model(model.schema, model.trees, **policies)


def test_link_is_refused_for_votes():
    schema = Schema(COLUMNS, classes=("no", "yes"))
    tree = build_tree(leaf([1, 2]), schema)
    with pytest.raises(ModelError, match="does not fit"):
        make_model(schema, [tree], link="softmax")
    with pytest.raises(ModelError, match="negative"):
        make_model(schema, [build_tree(leaf([-1.0, 2.0]), schema, margins=True)])


def test_leaf_values_whose_sum_overflows_are_refused():
    schema = Schema(COLUMNS, task="regression")
    trees = [build_tree(leaf(1e308), schema)] * 3
    with pytest.raises(ModelError, match="too large"):
        make_model(schema, trees, combine="sum")


def test_leaf_integers_whose_sum_exceeds_double_precision_are_refused(tmp_path):
    from dataclasses import replace

    model = boosted((), "identity")
    forged = replace(model, units=model.units * 4)
    forged.save(tmp_path / "m.treekit")
    with pytest.raises(ModelFileError, match="exceeds the maximum"):
        treekit.load(tmp_path / "m.treekit")


def test_link_functions_return_their_stored_bits():
    """Artifacts hold the constants: a model that changed them would leave its files behind."""
    x = [1.0, -1.0, 0.1, -17.3, 42.25, 300.7, -650.0]
    assert [value.hex() for value in exp(np.array(x)).tolist()] == GOLDEN_EXP
    shares = softmax(np.array([[0.5, -1.25, 3.0]]))[0].tolist()
    assert [value.hex() for value in shares] == GOLDEN_SOFTMAX
    assert (*(1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10, 700.0),) == (
        links.LOG2_E,
        links.LN2_HIGH,
        links.LN2_LOW,
        links.EXP_LIMIT,
    )
