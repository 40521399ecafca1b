"""Training with plugins on a Dask cluster: models equal those of one process."""

from dataclasses import replace

import numpy as np
import pytest

import treekit
from treekit.distributed import levels

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


def simulate():
    """Simulate classes, a treatment, times and events, with missing cells in the last rows."""
    rng = np.random.default_rng(0)
    rows = 500
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=rows).round(2),
            "b": rng.normal(size=rows).round(1),
            "c": pd.Categorical(rng.choice(["p", "q", "r"], rows)),
        }
    )
    treated, noise = rng.integers(0, 2, rows), rng.normal(size=rows)
    frame["class"] = np.where(frame["a"] + treated * frame["b"] + noise > 0, "yes", "no")
    frame["arm"] = np.where(treated == 1, "new", "old")
    frame["time"] = rng.exponential(np.exp(-frame["a"])).round(2) + 0.01
    frame["event"] = (rng.random(rows) < 0.7).astype(int)
    frame["times"] = rng.choice([0.0, 0.5, 1.0, 2.0], rows)
    frame.loc[rows - 60 :, "b"] = np.nan
    return frame


FOREST = {"ensemble": "forest", "trees": 4}
CLASSES = {"target": "class", "ignore": ["arm", "time", "event", "times"]}
UPLIFT = {
    "target": "class",
    "ignore": ["time", "event", "times"],
    "criterion.treatment": "arm",
    "criterion.control": "old",
}
SURVIVAL = {"target": "time", "ignore": ["class", "arm", "times"], "criterion.event": "event"}
TRAININGS = {
    "hellinger": {**CLASSES, "criterion": "hellinger"},
    "uplift": {**UPLIFT, "criterion": "uplift"},
    "log_rank": {**SURVIVAL, "criterion": "log_rank"},
    "relative_risk": {**SURVIVAL, "criterion": "relative_risk"},
    "significance": {**CLASSES, "pruner": "significance"},
}


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def save(model, folder):
    model.save(folder / "model.treekit")
    return (folder / "model.treekit").read_bytes()


@pytest.mark.parametrize("ensemble", [FOREST, {}], ids=["forest", "tree"])
@pytest.mark.parametrize("training", TRAININGS)
def test_plugins_train_equal_models_on_a_cluster_and_in_one_process(
    training, ensemble, client, tmp_path
):
    frame, settings = simulate(), TRAININGS[training] | ensemble | {"seed": 3}
    model = treekit.train(frame, **settings)
    assert model.n_leaves > model.n_trees
    expected = save(model, tmp_path)
    rows = dd.from_pandas(frame, npartitions=3)
    assert save(treekit.train(rows, **settings, cluster=client), tmp_path) == expected
    assert save(treekit.train(frame, **settings, cluster=client), tmp_path) == expected
    found = model.predict(rows)
    names = [output.name for output in model.schema.outputs]
    assert names == ([found.name] if found.ndim == 1 else list(found.columns))
    np.testing.assert_array_equal(found.compute(), model.predict(frame))


WEIGHTED = {"weights": "times"}
LEVELS = {
    **TRAININGS,
    "weighted uplift": {**TRAININGS["uplift"], **WEIGHTED, "ignore": ["time", "event"]},
    "weighted log_rank": {**TRAININGS["log_rank"], **WEIGHTED, "ignore": ["class", "arm"]},
    "weighted rates": {**TRAININGS["relative_risk"], **WEIGHTED, "ignore": ["class", "arm"]},
    "fairness": {
        **CLASSES,
        "ignore": ["time", "event", "times"],
        "criterion": "fairness",
        "criterion.protected": "arm",
    },
}


@pytest.mark.parametrize("training", LEVELS)
def test_plugins_train_equal_models_by_levels_and_in_one_process(
    training, client, tmp_path, monkeypatch
):
    choose_sizes = levels.choose_sizes

    def choose_small_nodes(*arguments):
        wave, sizes = choose_sizes(*arguments)
        return wave, replace(sizes, small_weight=40.0)

    monkeypatch.setattr(levels, "choose_sizes", choose_small_nodes)
    settings = {**FOREST, "seed": 3, "splitter": "histogram", **LEVELS[training]}
    frame = simulate()
    expected = save(treekit.train(frame, **settings), tmp_path)
    rows = dd.from_pandas(frame, npartitions=3)
    model = treekit.train(rows, **settings, cluster=client, cluster_mode="levels")
    assert model.n_leaves > model.n_trees
    assert save(model, tmp_path) == expected
