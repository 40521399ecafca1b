"""Predictions of the oldest and newest supported onnxruntime, and of faulty versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer

from treekit.errors import TreekitWarning
from treekit.estimators import RandomForestClassifier
from treekit.interop.skl2onnx import WRONG_RUNTIMES, warn_of_runtime

ROOT = Path(__file__).parents[2]
ALLOWED = next(
    line
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    if line.startswith("onnxruntime")
)
OLDEST = re.fullmatch(r"onnxruntime>=([0-9.]+)", ALLOWED)[1]  # type: ignore[index]

VERIFY = """
import sys
import treekit, onnxruntime
from tests.extremes import EXTREMES
print(onnxruntime.__version__)
names = ("mixed", "mixed64", "surrogates", "several_labels", "boosted_four", "costs", "oblique")
for name in names:
    model = EXTREMES[name]()
    (path,) = treekit.export(model, "onnx", f"{sys.argv[1]}/{name}.onnx")
    report = treekit.verify(model, [path])
    assert report.exit_code == 0, (name, str(report))
    assert report.artifacts[0].runtime == "onnxruntime", report.artifacts[0].runtime
"""

FOREST = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, onnxruntime
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from skl2onnx import to_onnx
x, y = load_breast_cancer(return_X_y=True)
x = x.astype(np.float32)
forest = RandomForestClassifier(100, random_state=0).fit(x, y)
options = {id(forest): {"zipmap": False}}
graph = to_onnx(forest, x[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
content, providers = graph.SerializeToString(), ["CPUExecutionProvider"]
session = onnxruntime.InferenceSession(content, providers=providers)
labels, shares = session.run(None, {session.get_inputs()[0].name: x})
wrong = (labels != forest.predict(x)).sum()
far = np.abs(shares - forest.predict_proba(x)).max()
print(onnxruntime.__version__, int(wrong), float(far))
"""


@cache
def install(folder: Path, wanted: str) -> Path:
    """Install a version of onnxruntime alone, for `PYTHONPATH`; skip without an index."""
    place = folder / re.sub(r"\W+", "_", wanted)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--target", str(place), wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        # The index cannot be reached, or has no such wheel for this Python.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(done.stderr[-500:])
    return place


def run(place: Path, program: str, *arguments: str) -> list[str]:
    paths = os.pathsep.join([str(place), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnxruntime")


@pytest.mark.system
@pytest.mark.parametrize("wanted", [f"onnxruntime=={OLDEST}.*", "onnxruntime"])
def test_exports_predict_equally_in_the_oldest_and_newest_onnxruntime(
    wanted: str, folder: Path, tmp_path: Path
) -> None:
    (version,) = run(install(folder, wanted), VERIFY, str(tmp_path))
    assert version.startswith(OLDEST) or wanted == ALLOWED.partition(">")[0]


@pytest.mark.system
@pytest.mark.parametrize("version", WRONG_RUNTIMES)
def test_exports_predict_equally_in_the_faulty_onnxruntime_versions(
    version: str, folder: Path, tmp_path: Path
) -> None:
    assert run(install(folder, f"onnxruntime=={version}"), VERIFY, str(tmp_path)) == [version]


@pytest.mark.system
@pytest.mark.parametrize("version", ["1.25.1", *WRONG_RUNTIMES, "1.28.0"])
def test_only_the_listed_onnxruntime_versions_are_faulty(version: str, folder: Path) -> None:
    """Of the releases from 1.21 to 1.32 these two are, and no other (measured)."""
    found, wrong, far = run(install(folder, f"onnxruntime=={version}"), FOREST)
    assert found == version
    assert (int(wrong) > 50) == (version in WRONG_RUNTIMES)
    assert (float(far) > 0.5) == (version in WRONG_RUNTIMES)


@pytest.mark.parametrize("version", [*WRONG_RUNTIMES, "1.25.1", "1.28.0", None])
def test_exporting_a_pipeline_warns_of_faulty_onnxruntime_versions(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_version(name: str) -> str:
        if version is None or name != "onnxruntime":
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", find_version)
    if version in WRONG_RUNTIMES:
        with pytest.warns(TreekitWarning, match=rf"onnxruntime {version}.*pip install"):
            warn_of_runtime()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_runtime()


@pytest.mark.matrix
def test_conversion_warns_of_faulty_onnxruntime_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    from skl2onnx import to_onnx

    x, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=3, random_state=0).fit(x, y)
    installed = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "1.27.0" if name == "onnxruntime" else installed(name)
    )
    with pytest.warns(TreekitWarning, match=r"onnxruntime 1\.27\.0"):
        to_onnx(forest, x[:1].astype("float32"), options={id(forest): {"zipmap": False}})
