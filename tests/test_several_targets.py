"""One model of several targets: growth, pruning, scores, the estimators, artifacts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.tree
from click.testing import CliRunner
from sklearn.metrics import r2_score

import treekit
from tests.growing import grow, same_tree
from tests.reference import grow as reference
from tests.test_grow import problem_of
from treekit.cli import main
from treekit.data.dataset import make_dataset, make_validation
from treekit.errors import DataError, SettingError
from treekit.estimators import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.model.tree import Split

CLASSES = ["label", "kind"]
NUMBERS = ["sum", "difference", "square"]


def table(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    """Inputs, one with gaps and one of categories; two targets of classes and three of numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    colour = rng.integers(0, 5, rows)
    noisy = x + rng.normal(scale=0.4, size=x.shape)
    gaps = x[:, 1].copy()
    size = np.digitize(noisy[:, 2] + (colour == 2), [-0.5, 0.5])
    gaps[::7] = np.nan
    return {
        "a": x[:, 0],
        "b": gaps,
        "c": x[:, 2],
        "colour": np.array(["red", "green", "blue", "grey", "black"])[colour],
        "label": np.where(noisy[:, 0] + noisy[:, 1] > 0, "yes", "no"),
        "kind": np.array(["lo", "mid", "hi"])[size],
        "sum": (noisy[:, 0] + noisy[:, 1]).round(3),
        "difference": (noisy[:, 0] - noisy[:, 2] + (colour < 2)).round(3),
        "square": (noisy[:, 1] ** 2).round(3),
    }


def train(targets: list[str], **settings: Any) -> treekit.Model:
    others = [name for name in CLASSES + NUMBERS if name not in targets]
    return treekit.train(table(), targets, ignore=others, seed=0, **settings)


def inputs(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    return {name: table(rows, seed)[name] for name in ("a", "b", "c", "colour")}


def plain() -> tuple[Any, Any, Any]:
    """Numbers without gaps, targets of classes, targets of numbers: what scikit-learn takes."""
    own = table()
    x = np.column_stack([own["a"], np.nan_to_num(own["b"]), own["c"]])
    return x, *(np.column_stack([own[name] for name in names]) for names in (CLASSES, NUMBERS))


# ------------------------------------------------------------------ growth


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
@pytest.mark.parametrize("max_bins", [None, 5])
def test_trees_of_several_targets_equal_the_oracle(criterion: str, max_bins: int | None) -> None:
    rng = random.Random(f"several {criterion} {max_bins}")
    for several in ((2, 3), (3, 2, 3)):
        for _ in range(9):
            sizes = (0,) * len(several) if criterion == "squared_error" else several
            problem = problem_of(rng, criterion, multiway=rng.random() < 0.3, max_bins=max_bins)
            y = [tuple(rng.randrange(size or 6) for size in sizes) for _ in problem.y]
            problem = replace(
                problem,
                y=y,
                n_classes=sizes[0],
                several=sizes,
                min_weight_leaf=rng.choice([1, 2, 5]),
                max_leaves=rng.choice([0, 0, 4]),
                min_impurity=rng.choice([-1.0, -1.0, 0.3]),
                exact_levels=rng.choice([2, 4, 10]),
            )
            same_tree(problem, grow(problem), reference.grow(problem))


@pytest.mark.matrix
def test_one_target_twice_grows_the_tree_of_one() -> None:
    own = table()
    for name, other in (("kind", "gini"), ("sum", "squared_error")):
        data = {**inputs(), name: own[name]}
        alone = treekit.train(data, name, criterion=other, seed=0, max_depth=5)
        twice = treekit.train(
            {**data, "again": own[name]}, [name, "again"], criterion=other, seed=0, max_depth=5
        )
        one, two = alone.trees[0], twice.trees[0]
        np.testing.assert_array_equal(one.kind, two.kind)
        np.testing.assert_array_equal(one.feature, two.feature)
        np.testing.assert_array_equal(one.threshold, two.threshold)
        np.testing.assert_array_equal(np.hstack([one.value, one.value]), two.value)
        np.testing.assert_allclose(one.gain, two.gain, rtol=1e-12)


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_a_row_of_weight_two_is_two_rows(targets: list[str]) -> None:
    own = {name: table()[name] for name in (*inputs(), *targets)}
    weights = 1 + np.arange(240) % 2
    twice = {name: np.repeat(column, weights) for name, column in own.items()}
    weighed = treekit.train(own, targets, weights=weights, seed=0)
    copied = treekit.train(twice, targets, seed=0)
    for field in ("kind", "feature", "threshold", "missing", "value", "weight", "gain"):
        mine, theirs = getattr(weighed.trees[0], field), getattr(copied.trees[0], field)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "targets",
    [pytest.param(CLASSES, marks=pytest.mark.matrix), NUMBERS],
    ids=["classes", "numbers"],
)
def test_rows_in_parts_keep_the_weight_of_every_target(targets: list[str]) -> None:
    model = train(targets, missing="fractional", max_depth=5)
    tree = model.trees[0]
    assert (tree.kind != Split.LEAF).sum() > 5
    for node in np.flatnonzero(tree.kind != Split.LEAF):
        first = tree.first_child[node]
        below = slice(first, first + tree.n_children[node])
        assert tree.weight[below].sum() == pytest.approx(tree.weight[node], rel=1e-12)
        if targets == CLASSES:
            np.testing.assert_allclose(tree.value[below].sum(axis=0), tree.value[node], rtol=1e-9)
    if targets == CLASSES:
        for first, last in ((0, 2), (2, 5)):
            np.testing.assert_allclose(tree.value[:, first:last].sum(axis=1), tree.weight)


# ------------------------------------------------------------------ what goes with it


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_cost_complexity_judges_by_the_mean_over_the_targets(targets: list[str]) -> None:
    whole = train(targets).trees[0]
    pruned = train(targets, pruner="cost_complexity", **{"pruner.alpha": 0.02}).trees[0]
    assert 1 < pruned.n_leaves < whole.n_leaves
    report = train(targets, pruner="cost_complexity").provenance["pruner"]["sequence"]
    if targets == CLASSES:
        right = [whole.value[0, a:b].max() for a, b in ((0, 2), (2, 5))]
        assert report["risk"][-1] == pytest.approx(1 - np.mean(right) / 240)
    else:
        spread = np.mean([np.var(table()[name]) for name in NUMBERS])
        assert report["risk"][-1] == pytest.approx(spread, rel=1e-9)
    assert all(error > 0 for error in report["cv_standard_error"])


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_pruners_judge_held_out_rows_by_all_targets(targets: list[str]) -> None:
    whole = train(targets)
    own = make_dataset(table(), targets, ignore=[n for n in CLASSES + NUMBERS if n not in targets])
    held = {name: table(100, 1)[name] for name in (*inputs(), *targets)}

    def error(model: treekit.Model) -> float:
        said = model.predict(inputs(100, 1))
        actual = np.column_stack([held[name] for name in targets])
        return float(np.mean(said != actual if targets == CLASSES else (said - actual) ** 2))

    others = [name for name in CLASSES + NUMBERS if name not in targets]
    pruned = treekit.train(
        table(), targets, ignore=others, seed=0, pruner="reduced_error", validation=held
    )
    assert make_validation(held, own.schema).y.shape == (100, len(targets))
    assert pruned.n_leaves < whole.n_leaves
    assert error(pruned) < error(whole)
    chosen = train(targets, pruner="cost_complexity", **{"pruner.rule": "one_se"})
    assert chosen.n_leaves < whole.n_leaves
    held_out = train(
        targets, pruner="cost_complexity", **{"pruner.rule": "one_se", "pruner.holdout": 0.3}
    )
    errors = held_out.provenance["pruner"]["sequence"]["held_standard_error"]
    assert np.isfinite(errors).all()


def test_forests_score_the_rows_out_of_bag_by_all_targets() -> None:
    labels = train(CLASSES, ensemble="forest", trees=20, oob=True)
    numbers = train(NUMBERS, ensemble="forest", trees=20, oob=True)
    assert 0.5 < labels.provenance["oob"]["accuracy"] < 1.0
    assert 0.3 < numbers.provenance["oob"]["r2"] < 1.0
    again = train(CLASSES, ensemble="forest", trees=20, oob=True, n_jobs=2)
    np.testing.assert_array_equal(labels.units, again.units)


@pytest.mark.parametrize(
    ("targets", "settings", "message"),
    [
        (CLASSES, {"criterion": "gain_ratio"}, "'gain_ratio' chooses between columns"),
        (CLASSES, {"algorithm": "c45"}, "'gain_ratio' of algorithm 'c45'"),
        (NUMBERS, {"criterion": "absolute_error"}, "'absolute_error' looks at the order"),
        (CLASSES, {"pruner": "error_based"}, "'error_based' is for one target"),
        (CLASSES, {"pruner": "chi_squared"}, "'chi_squared' is for one target"),
        (CLASSES, {"class_weight": "balanced"}, "class_weight is for one target"),
        (CLASSES, {"priors": {"yes": 0.5}}, "priors is for one target"),
        (CLASSES, {"costs": "yes>no=5"}, "costs is for one target"),
        (CLASSES, {"numeric_side": "c45"}, "numeric_side='c45' counts the classes of one target"),
    ],
)
def test_what_is_for_one_target_is_refused_by_name(
    targets: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        train(targets, **settings)


def test_targets_are_named_once_and_are_of_one_kind() -> None:
    own = table()
    with pytest.raises(DataError, match="'label' is named twice"):
        treekit.train(own, ["label", "label"])
    with pytest.raises(DataError, match="'label' is for classification and 'sum' for regression"):
        treekit.train(own, ["label", "sum"])
    with pytest.raises(DataError, match="no target is named"):
        treekit.train(own, [])
    with pytest.raises(SettingError, match=r"give those of each by name, such as \{'label'"):
        train(CLASSES, classes=["no", "yes"])
    declared = train(CLASSES, classes={"kind": ["hi", "mid", "lo"]}, max_depth=1)
    assert [o.classes for o in declared.schema.outputs] == [("no", "yes"), ("hi", "mid", "lo")]
    gone = {**own, "kind": np.where(np.arange(240) == 5, None, own["kind"])}
    with pytest.raises(DataError, match=r"'kind'.*missing.*row 5"):
        treekit.train(gone, CLASSES)


# ------------------------------------------------------------------ artifacts, command line


FOREST: dict[str, Any] = {"ensemble": "forest", "trees": 3}
PARTS: dict[str, Any] = {"missing": "fractional"}
SUMS: dict[str, Any] = {"missing": "surrogate", "splitter": "oblique"}


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        pytest.param(FOREST, CLASSES, id="forest-classes"),
        pytest.param(FOREST, NUMBERS, id="forest-numbers", marks=pytest.mark.matrix),
        pytest.param(PARTS, CLASSES, id="fractional-classes", marks=pytest.mark.matrix),
        pytest.param(PARTS, NUMBERS, id="fractional-numbers"),
        pytest.param(SUMS, CLASSES, id="surrogate and oblique-classes", marks=pytest.mark.matrix),
        pytest.param(SUMS, NUMBERS, id="surrogate and oblique-numbers", marks=pytest.mark.matrix),
    ],
)
def test_every_artifact_of_a_trained_model_is_equal(
    tmp_path: Path, targets: list[str], settings: dict[str, Any]
) -> None:
    model = train(targets, max_depth=4, **settings)
    model.save(tmp_path / "m.treekit")
    assert treekit.load(tmp_path / "m.treekit").schema == model.schema
    paths = [
        treekit.export(model, name, tmp_path / f"m{suffix}")[0]
        for name, suffix in (
            ("c", ".c"),
            ("python", ".py"),
            ("rules", ".rules.txt"),
            ("onnx", ".onnx"),
        )
    ]
    report = treekit.verify(model, paths)
    assert report.equal, str(report)


def test_the_command_line_trains_and_scores_several_targets(tmp_path: Path) -> None:
    own = table()
    names = [*inputs(), *CLASSES]
    for name, rows in (("train.csv", slice(0, 180)), ("test.csv", slice(180, 240))):
        lines = zip(*(own[column][rows] for column in names), strict=True)
        text = [",".join("" if cell != cell else str(cell) for cell in line) for line in lines]
        (tmp_path / name).write_text("\n".join([",".join(names), *text]) + "\n")
    wanted = ["train", str(tmp_path / "train.csv"), "--target", "label", "--target", "kind"]
    wanted += ["-o", str(tmp_path / "m.treekit"), "--test", str(tmp_path / "test.csv")]
    done = CliRunner().invoke(main, [*wanted, "--set", "max_depth=4", "--seed", "0"])
    assert done.exit_code == 0, done.output
    assert "accuracy of 'label' on 60 rows" in done.output
    assert "accuracy of 'kind' on 60 rows" in done.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.treekit")])
    assert "'label'" in shown.output
    assert "'kind'" in shown.output


# ------------------------------------------------------------------ beside scikit-learn


@pytest.mark.parametrize("criterion", ["gini", pytest.param("entropy", marks=pytest.mark.matrix)])
@pytest.mark.parametrize(
    "class_weight", [None, "balanced", [{"yes": 2, "no": 1}, {"lo": 1, "mid": 1, "hi": 3}]]
)
def test_classification_trees_are_those_of_scikit_learn(criterion: str, class_weight: Any) -> None:
    x, y, _ = plain()
    how = {"criterion": criterion, "class_weight": class_weight, "max_depth": 3}
    mine = DecisionTreeClassifier(**how, random_state=0).fit(x, y)
    theirs = sklearn.tree.DecisionTreeClassifier(**how, random_state=0).fit(x, y)
    assert mine.n_outputs_ == 2
    for own, other in zip(mine.classes_, theirs.classes_, strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(mine.predict(x), theirs.predict(x))
    assert len(mine.predict_proba(x)) == 2
    for own, other in zip(mine.predict_proba(x), theirs.predict_proba(x), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-6)
    np.testing.assert_allclose(np.sort(mine.tree_.impurity), np.sort(theirs.tree_.impurity))
    assert mine.tree_.value.shape == theirs.tree_.value.shape
    np.testing.assert_array_equal(mine.to_sklearn().predict(x), theirs.predict(x))


def test_regression_trees_are_those_of_scikit_learn() -> None:
    x, _, y = plain()
    mine = DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    theirs = sklearn.tree.DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    np.testing.assert_allclose(mine.predict(x), theirs.predict(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sort(mine.tree_.impurity), np.sort(theirs.tree_.impurity))
    assert mine.score(x, y) == pytest.approx(theirs.score(x, y))
    mine.set_params(max_depth=None)
    own, other = (tree.cost_complexity_pruning_path(x, y) for tree in (mine, theirs.set_params(
        max_depth=None)))  # fmt: skip
    alpha = other.ccp_alphas[-8]
    assert own.ccp_alphas[-8] == pytest.approx(alpha)
    mine.set_params(ccp_alpha=alpha * 1.001).fit(x, y)
    theirs.set_params(ccp_alpha=alpha * 1.001).fit(x, y)
    assert mine.get_n_leaves() == theirs.get_n_leaves()


def test_forests_answer_for_all_outputs() -> None:
    x, labels, numbers = plain()
    mine = RandomForestClassifier(n_estimators=40, oob_score=True, random_state=0).fit(x, labels)
    assert mine.predict(x).shape == labels.shape
    assert mine.oob_decision_function_.shape == (240, 3, 2)
    np.testing.assert_allclose(np.nansum(mine.oob_decision_function_, axis=1), 1.0)
    said = [mine.classes_[k][mine.oob_decision_function_[:, :, k].argmax(axis=1)] for k in (0, 1)]
    right = (np.column_stack(said) == labels).mean()
    assert mine.oob_score_ == pytest.approx(right, abs=0.02)  # shares that tie by rounding
    assert mine.estimators_[0].predict(x).shape == labels.shape
    how = {"n_estimators": 40, "oob_score": True, "random_state": 0}
    own = RandomForestRegressor(**how).fit(x, numbers)
    theirs = sklearn.ensemble.RandomForestRegressor(**how).fit(x, numbers)
    assert own.oob_score_ == pytest.approx(theirs.oob_score_, abs=0.05)
    assert own.oob_score_ == pytest.approx(r2_score(numbers, own.oob_prediction_))


def test_a_validation_target_has_as_many_outputs() -> None:
    x, labels, _ = plain()
    tree = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    tree.fit(x[:180], labels[:180], validation=(x[180:], labels[180:]))
    assert tree.get_n_leaves() < 60
    with pytest.raises(DataError, match="1 columns and that of the training rows 2"):
        tree.fit(x[:180], labels[:180], validation=(x[180:], labels[180:, 0]))
    strange = np.where(np.arange(60)[:, None] == 3, "other", labels[180:])
    with pytest.raises(DataError, match="'other', which is no label"):
        tree.fit(x[:180], labels[:180], validation=(x[180:], strange))
