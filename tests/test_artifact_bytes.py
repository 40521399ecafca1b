"""Stored model files load and answer as on the day they were written, and export the same bytes.

The files, their rows and answers are in ``tests/snapshots/models``, the digests of their
artifacts in ``tests/snapshots/artifacts.txt``.
"""

from __future__ import annotations

import dataclasses
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.snapshots.answers import (
    ANSWERS,
    MODELS_FOLDER,
    differences,
    read_answers,
    read_sections,
    shown_answers,
)
from tests.snapshots.artifacts import (
    LIBRARIES,
    digest_lines,
    installed_versions,
    recorded_versions,
    stored_lines,
    uses,
)
from tests.snapshots.make_models import MODELS, TRAINED, main, model_path
from tests.tiers import later
from treekit.model.model import Model
from treekit.model.tree import Tree

QUICK = (
    *("trained_tree", "trained_cost_complexity", "trained_c45", "trained_surrogates"),
    *("trained_forest", "trained_regression_forest", "read_xgboost", "read_boosting"),
)
"""Trained models of the first tier: others use kernels that take long to compile."""
REWRITE = "if that is meant: python -m tests.snapshots artifacts.txt"
RECORDED, INSTALLED = recorded_versions(), installed_versions()
OTHER_VERSIONS = [library for library in LIBRARIES if RECORDED[library] != INSTALLED[library]]

stored_model = cache(lambda name: treekit.load(model_path(name)))
artifact_lines = cache(stored_lines)
answer_sections = cache(lambda: read_sections(ANSWERS))


def test_every_model_has_its_files_answers_and_digests() -> None:
    names = sorted(MODELS)
    for suffix in (".treekit", ".npz"):
        assert sorted(path.stem for path in MODELS_FOLDER.glob(f"*{suffix}")) == names
    assert sorted(answer_sections()) == names
    assert sorted(artifact_lines()) == names, f"stale or missing models; {REWRITE}"


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_gives_the_stored_answers(name: str) -> None:
    rows, stored = read_answers(model_path(name, ".npz"))
    found = differences(stored_model(name), rows, stored)
    assert not found, "\n".join([f"model {name}:", *found])
    assert shown_answers(stored_model(name), rows) == answer_sections()[name]


@pytest.mark.parametrize("name", MODELS)
def test_saving_a_stored_model_gives_the_same_file(name: str, tmp_path: Path) -> None:
    stored_model(name).save(tmp_path / "again.treekit")
    before, after = model_path(name), tmp_path / "again.treekit"
    old, new = entries_of(before), entries_of(after)
    other = [entry for entry in sorted(old | new) if old.get(entry) != new.get(entry)]
    assert not other, f"entries differ: {', '.join(other)}"
    assert list(old) == list(new)
    assert after.read_bytes() == before.read_bytes()


@pytest.mark.parametrize(
    "name",
    [later(name) if name in TRAINED and name not in QUICK else name for name in MODELS],
)
def test_artifacts_have_the_stored_digests(name: str) -> None:
    made = digest_lines(stored_model(name), without=OTHER_VERSIONS)
    stored = {
        form: line
        for form, line in artifact_lines().get(name, {}).items()
        if not uses(form, OTHER_VERSIONS)
    }
    found = list(changed_lines(stored, made))
    assert not found, "\n".join([f"artifacts of model {name!r} changed:", *found, REWRITE])


@pytest.mark.parametrize("library", LIBRARIES)
def test_artifacts_are_made_by_the_recorded_versions(library: str) -> None:
    if library in OTHER_VERSIONS:
        pytest.skip(
            f"artifacts.txt was written with {library} {RECORDED[library]}, and "
            f"{INSTALLED[library]} is installed: forms that start with "
            f"{' or '.join(map(repr, LIBRARIES[library]))} are not compared"
        )
    assert any(uses(form, [library]) for lines in artifact_lines().values() for form in lines)


def test_a_release_leaves_the_digests_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stored_model("one_leaf")
    before = digest_lines(model)  # also imports what is imported when it is used
    for module in [found for key, found in sys.modules.items() if key.startswith("treekit")]:
        if hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "12.345.6")
    assert digest_lines(model) == before


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.system) for name in TRAINED],
)
def test_training_again_gives_the_same_model(name: str) -> None:
    found = list(model_differences(stored_model(name), TRAINED[name]()))
    assert not found, "\n".join([f"model {name!r} is trained otherwise:", *found])


def test_an_existing_model_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    before = model_path("one_leaf").stat()
    with pytest.raises(SystemExit):
        main(["one_leaf"])
    assert "--replace" in capsys.readouterr().err
    assert model_path("one_leaf").stat() == before


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed_lines(stored: dict[str, str], made: dict[str, str]) -> Iterator[str]:
    """Say which forms, and which of their files, changed."""
    for form in dict.fromkeys([*stored, *made]):
        before, after = stored.get(form), made.get(form)
        if before is None:
            yield f"  {form}: no stored line"
        elif after is None:
            yield f"  {form}: a stored line of a form that is no longer made"
        elif before != after:
            yield f"  {form}: {changed_files(before, after)}"


def changed_files(before: str, after: str) -> str:
    if "refused: " in before + after:
        return f"{after}; stored: {before}"
    old, new = (
        dict(zip(words[::2], words[1::2], strict=True)) for words in (before.split(), after.split())
    )
    names = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {new.get(name, 'gone')}, stored {old.get(name)}" for name in names)


def model_differences(stored: Model, made: Model) -> Iterator[str]:
    """Name what differs in a model: trees exactly, but gains within 1e-12, and stored settings."""
    for field in dataclasses.fields(Model):
        if field.name not in ("trees", "settings", "provenance"):
            before, after = (np.asarray(getattr(model, field.name)) for model in (stored, made))
            if not np.array_equal(before, after):
                yield f"  {field.name}: {array_difference(before, after)}"
    for setting, value in stored.settings.items():
        if made.settings.get(setting) != value:
            yield f"  setting {setting}: {made.settings.get(setting)!r}, stored {value!r}"
    for number, (before, after) in enumerate(zip(stored.trees, made.trees, strict=False)):
        for field in dataclasses.fields(Tree):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if not same_array(field.name, old, new):
                yield f"  tree {number}, {field.name}: {array_difference(old, new)}"
    if made.n_trees != stored.n_trees:
        yield f"  {made.n_trees} trees, stored {stored.n_trees}"


def same_array(name: str, old: Any, new: Any) -> bool:
    if name == "gain":
        return old.shape == new.shape and np.allclose(new, old, rtol=1e-12, atol=0.0)
    same: bool = old.dtype == new.dtype and old.tobytes() == new.tobytes()
    return same


def array_difference(old: Any, new: Any) -> str:
    """Describe two arrays that differ, by the first entry that does."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{new.dtype} of shape {new.shape}, stored {old.dtype} of shape {old.shape}"
    if not old.shape:
        return f"{new}, stored {old}"
    at = tuple(np.argwhere((old != new) & ~((old != old) & (new != new)))[0].tolist())
    return f"entry {at} is {new[at]!r}, stored {old[at]!r}"
