"""``treekit import`` makes a model file of another library's, for all other commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.foreign import FOLDER
from treekit.cli import main


def run(*arguments: str | Path) -> tuple[int, str]:
    outcome = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return outcome.exit_code, outcome.output


@pytest.mark.parametrize("name", ["xgboost_three.json", "xgboost_dart.ubj", "sklearn_bag.skops"])
def test_a_foreign_file_becomes_a_model_file(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out" / "model.treekit"
    code, said = run("import", FOLDER / name, "-o", output)
    assert code == 0, said
    assert str(output) in said.replace("\n", "")
    assert "read by" in said
    told = json.loads((FOLDER / name).with_suffix(".answers").read_text())
    ours = treekit.load(output).predict_proba(told["rows"])
    theirs = np.array(told["predictions"])
    ours = ours[:, 1] if theirs.ndim == 1 else ours
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-7)
    code, said = run("rules", output)
    assert code == 0, said


def test_settings_of_the_importer_are_given_like_others(tmp_path: Path) -> None:
    output = tmp_path / "m.treekit"
    more = ("--set", "answer=margins", "--set", "iterations=2")
    code, said = run("import", FOLDER / "xgboost_three.json", "-o", output, *more)
    assert code == 0, said
    model = treekit.load(output)
    assert (model.schema.task, model.n_trees) == ("regression", 1 + 3 * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.json"], "there is no file 'absent.json'"),
        ([FOLDER / "make.py"], "no importer recognises the file 'make.py'"),
        ([FOLDER / "xgboost_hinge.json"], "answer='margins'"),
        ([FOLDER / "xgboost_raw.json", "--set", "dtype=float64"], "has no setting 'dtype'"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_message(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    code, said = run("import", *arguments, "-o", tmp_path / "m.treekit")
    assert code == 2
    assert message in said
    assert not (tmp_path / "m.treekit").exists()


def test_a_foreign_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes((FOLDER / "xgboost_raw.json").read_bytes())
    code, said = run("import", path, "-o", path)
    assert (code, "is an input of this command" in said) == (2, True)
