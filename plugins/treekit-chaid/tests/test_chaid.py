"""Compare merges and tests with Kass 1980; check exports without the plugin."""

import subprocess
import sys
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from treekit_chaid.merging import merge_categories
from treekit_chaid.multipliers import FREE, MONOTONIC, log_multiplier
from treekit_chaid.search import quantile_ends
from treekit_chaid.significance import log_chi_squared_tail, log_f_tail, log_p_value

import treekit
from treekit import registry
from treekit.errors import PluginError
from treekit.model.scoring import leaf_indices
from treekit.testing import check_splitter

sys.path.insert(0, str(Path(__file__).parent))
plain = import_module("plain_chaid")

DATA = Path(__file__).parent.parent / "data"
MISSING = plain.MISSING


def titanic():
    """Read the passengers, with ages in tens of years; ages and ports may be missing."""
    table = pd.read_csv(DATA / "titanic.csv.gz", keep_default_na=False, na_values=[""])
    table["age"] = np.minimum(table["age"] // 10, 6)
    table["embarked"] = table["embarked"].astype(object).where(table["embarked"].notna(), None)
    return table.drop(columns="fare")


# ------------------------------------------------------------------ the tests and multipliers


@pytest.mark.parametrize(
    ("chi", "freedom"), [*product((0.01, 1.0, 7.5, 80.0, 600.0), (1, 2, 5, 40))]
)
def test_chi_squared_tail_equals_scipy(chi, freedom):
    assert log_chi_squared_tail(chi, freedom) == pytest.approx(stats.chi2.logsf(chi, freedom))


@pytest.mark.parametrize(
    ("f", "between", "within"), [*product((0.01, 0.9, 4.0, 90.0), (1, 2, 7), (1.0, 6.5, 400.0))]
)
def test_f_distribution_tail_equals_scipy(f, between, within):
    wanted = stats.f.logsf(f, between, within)
    assert log_f_tail(f, between, within) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_tails_beyond_the_range_of_doubles_are_still_ordered():
    tails = [log_chi_squared_tail(chi, 3) for chi in (2e3, 4e3, 8e6)]
    assert tails[0] > tails[1] > tails[2] > -np.inf
    assert tails[0] == pytest.approx(-2e3 / 2 + np.log(2e3 / 2) / 2, rel=0.01)


@pytest.mark.parametrize("c", range(2, 13))
def test_bonferroni_multipliers_equal_the_paper(c):
    for r in range(2, c + 1):
        for kind, floating in ((FREE, False), (MONOTONIC, False), (MONOTONIC, True)):
            exact = plain.multiplier(c, r, kind == MONOTONIC, floating)
            assert np.exp(log_multiplier(c, r, kind, floating)) == pytest.approx(exact)


def test_multipliers_of_hundreds_of_categories_are_finite():
    assert log_multiplier(500, 3, FREE, False) == pytest.approx(500 * np.log(3) - np.log(6))


# ------------------------------------------------------------------ merging


def predictor(rng):
    """Draw a predictor as categories, targets and the inputs of the plain oracle and the plugin."""
    n, c, d = rng.integers(20, 300), rng.integers(3, 8), rng.integers(2, 4)
    numbers, monotonic = rng.random(2) < (0.3, 0.5)
    lift, cells = rng.random(c) * rng.choice([0.5, 2]), rng.integers(0, c, n)
    cells = np.unique(cells, return_inverse=True)[1]
    c = cells.max() + 1
    floating = bool(monotonic and c > 2 and rng.random() < 0.5)
    y = rng.normal(size=n) + lift[cells]
    if not numbers:
        y = (rng.random(n) * d * 0.8 + lift[cells]).astype(int) % d
    own = np.where(floating & (cells == c - 1), MISSING, cells)
    test = plain.p_of_numbers if numbers else plain.p_of_classes
    oracle = plain.Predictor(own.tolist(), y.tolist(), monotonic, test)
    table = np.zeros((c, 3 if numbers else d))
    away = y - y.mean()
    for k in range(c):
        at = cells == k
        sums = (at.sum(), away[at].sum(), (away[at] ** 2).sum())
        table[k] = sums if numbers else np.bincount(y[at], minlength=d)
    return oracle, table, MONOTONIC if monotonic else FREE, floating, bool(numbers)


@pytest.mark.parametrize("seed", range(6))
def test_categories_merge_and_split_as_in_the_plain_python_oracle(seed):
    rng = np.random.default_rng(seed)
    merged = 0
    for _ in range(25):
        oracle, table, kind, floating, numbers = predictor(rng)
        part, least = float(rng.choice([0.0, 0.04, 0.01])), int(rng.choice([1, 10, 30]))
        wanted = oracle.merged(0.05, part, least)
        log_part = np.log(part) if part else -np.inf
        group_of, sums = merge_categories(
            table, kind, floating, np.log(0.05), log_part, least, numbers
        )
        names = np.unique(group_of)
        of_category = np.array(oracle.categories)
        assert [set(of_category[group_of == g].tolist()) for g in names] == wanted
        if len(names) > 1:
            value = log_p_value(sums[names], numbers)
            value += log_multiplier(len(table), len(names), kind, floating)
            assert np.exp(value) == pytest.approx(oracle.adjusted(wanted), rel=1e-8)
            merged += 1
    assert merged > 5


def test_bins_have_about_equal_weight_and_never_split_equal_values():
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 400, 3000), rng.integers(1, 4, 3000).astype(float)
    ends = quantile_ends(codes, weights, 10)
    shares = np.bincount(np.searchsorted(ends, codes), weights=weights) / weights.sum()
    assert len(ends) == 10
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.01)
    assert ends[-1] == codes.max()
    heavy = np.array([0] * 90 + [1, 2, 3, 4])
    assert quantile_ends(heavy, np.ones(94), 10).tolist() == [0, 1, 2, 3, 4]
    assert len(quantile_ends(np.repeat([0, *range(1, 40)], 3), np.ones(120), 10)) == 10


# ------------------------------------------------------------------ trees


def plain_leaves(columns, y, numeric, least, rows):
    """Return the final groups of rows of CHAID in plain Python."""
    best = None
    for name, cells in columns.items():
        own = [cells[i] for i in rows]
        oracle = plain.Predictor(own, [y[i] for i in rows], name in numeric, plain.p_of_classes)
        groups = oracle.merged(0.05, 0.0, least)
        p = oracle.adjusted(groups) if len(groups) > 1 else 1.0
        if p <= 0.05 and (best is None or p < best[0]):
            best = (p, name, groups)
    if best is None:
        return [rows]
    _, name, groups = best
    found = []
    for group in groups:
        part = [i for i in rows if columns[name][i] in group]
        found += plain_leaves(columns, y, numeric, least, part)
    return found


def test_tree_of_the_titanic_equals_the_plain_python_oracle():
    table = titanic()
    model = treekit.train(
        table, "survived", splitter="chaid", min_weight_leaf=10, min_weight_split=0
    )
    columns = {
        name: [MISSING if cell is None or cell != cell else cell for cell in table[name]]
        for name in table.columns.drop("survived")
    }
    for name in ("sex", "embarked"):
        levels = sorted({cell for cell in columns[name] if cell != MISSING})
        columns[name] = [MISSING if c == MISSING else levels.index(c) for c in columns[name]]
    numeric = {"pclass", "age", "sibsp", "parch"}
    wanted = plain_leaves(columns, table["survived"].tolist(), numeric, 10, list(range(891)))
    codes = np.array([[np.nan if c == MISSING else c for c in columns[n]] for n in columns]).T
    at = leaf_indices(model, codes)[:, 0]
    assert sorted(np.flatnonzero(at == leaf).tolist() for leaf in set(at)) == sorted(wanted)
    assert 5 < len(wanted) < 30


def test_noise_is_not_split():
    rng = np.random.default_rng(0)
    table = {f"x{i}": rng.integers(0, 99, 500) for i in range(4)}
    table["c"] = rng.integers(0, 9, 500).astype(str)
    table["y"] = rng.integers(0, 2, 500)
    assert treekit.train(table, "y", splitter="chaid", nominal=["c"]).n_leaves == 1


@pytest.mark.parametrize("apart", [False, True])
def test_missing_values_join_the_most_similar_group_or_form_their_own(apart):
    x = np.repeat([1.0, 2.0, 3.0, np.nan], 60)
    rates = {1.0: 0.1, 2.0: 0.5, 3.0: 0.9}
    share = [rates.get(v, 0.3 if apart else 0.9) for v in x]
    y = np.tile(np.arange(60), 4) / 60 < share
    for column, nominal in ((x, []), (np.where(np.isnan(x), None, x.astype(str)), ["x"])):
        model = treekit.train({"x": column, "y": y}, "y", splitter="chaid", nominal=nominal)
        assert model.n_leaves == (4 if apart else 3)
        shares = model.predict_proba({"x": column})[:, 1]
        assert shares[-1] == pytest.approx(0.3 if apart else 0.9, abs=1e-6)
        assert (shares[-1] == shares[130]) != apart


def test_regression_target_is_split_by_the_f_test():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 6, 600)
    noise = rng.normal(size=600)
    noise -= (np.bincount(level, noise) / np.bincount(level))[level]  # makes means exactly equal
    y = 1e6 + np.array([0.0, 5.0, 0.0, 9.0, 5.0, 0.0])[level] + noise
    table = {"c": np.array(list("abcdef"), object)[level], "other": rng.random(600), "y": y}
    model = treekit.train(table, "y", splitter="chaid")
    assert model.n_leaves == 3
    said = model.predict({"c": list("abcdef"), "other": np.zeros(6)})
    assert said == pytest.approx([1e6, 1e6 + 5, 1e6, 1e6 + 9, 1e6 + 5, 1e6], abs=0.3)


def test_several_targets_are_refused():
    table = {"x": [1.0, 2.0] * 20, "y": [0, 1] * 20, "z": [0, 1] * 20}
    with pytest.raises(PluginError, match=r"'chaid'.*requires one target"):
        treekit.train(table, ["y", "z"], splitter="chaid")


def test_splitter_passes_the_contract_checks():
    check_splitter("chaid")


def test_splitter_is_registered_by_its_distribution():
    assert registry.list("splitter")["chaid"].distribution == "treekit-chaid"


def test_exports_run_without_the_plugin_and_without_treekit(run_alone, tmp_path):
    table = titanic()
    model = treekit.train(table, "survived", splitter="chaid", min_weight_leaf=10)
    for told in run_alone(model, table).values():
        assert np.array_equal(told, model.predict_proba(table))
    files = [treekit.export(model, kind, tmp_path / "m")[0] for kind in ("onnx", "c", "rules")]
    assert treekit.verify(model, files, random_rows=300).equal


def test_command_line_trains_with_the_splitter(tmp_path):
    titanic().to_csv(tmp_path / "titanic.csv", index=False)
    command = [Path(sys.executable).with_name("treekit"), "train", tmp_path / "titanic.csv"]
    command += ["--target", "survived", "--splitter", "chaid", "--set", "splitter.alpha_split=0.01"]
    subprocess.run([*command, "-o", tmp_path / "m.treekit"], check=True, capture_output=True)
    model = treekit.load(tmp_path / "m.treekit")
    assert model.settings["splitter"] == "chaid"
    assert model.n_leaves > 3
