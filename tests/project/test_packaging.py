"""The wheel holds all that treekit needs, and works away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import treekit

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.system

EXPORT = """
import json, sys, treekit
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model

columns = (Column("age"), Column("job", "nominal", ("cook", "smith")))
schema = Schema(columns, "y", classes=("a", "b"))
root = threshold("age", 30.5, leaf([9, 1]), subset("job", ["cook"], leaf([0, 5]), leaf([3, 1])))
model = make_model(schema, [build_tree(root, schema)])
for target in ("c", "python"):
    treekit.export(model, target, f"out/{target}")
rows = {"age": [20, 40, 40], "job": ["cook", "cook", "smith"]}
print(json.dumps({"from": treekit.__file__, "labels": model.predict(rows).tolist()}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the interpreter that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (built,) = folder.glob("treekit_ml-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment in which the wheel is installed.

    The libraries that treekit needs come from the environment that runs the
    tests, through a path file; its own treekit is shadowed by the wheel's.
    """
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / Path(sys.executable).name
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    library = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    borrowed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (library / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return python


def test_the_wheel_holds_templates_tables_and_type_information(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "treekit/py.typed" in names
    shipped = [
        *(("treekit" / path.relative_to(ROOT)) for path in files(ROOT / "templates")),
        *(path.relative_to(ROOT) for path in files(ROOT / "treekit")),
    ]
    assert {path.as_posix() for path in shipped} <= names
    assert any(name.startswith("treekit/data/tables/") for name in names)
    assert not any("__pycache__" in name for name in names)
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"treekit", f"treekit_ml-{treekit.__version__}.dist-info"}


def files(folder: Path) -> list[Path]:
    """Files below a folder that a checkout holds; caches are not among them."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts and path.name[0] != "."]


def test_the_wheel_exports_away_from_the_checkout(python: Path, tmp_path: Path):
    command = [str(python), "-I", "-c", EXPORT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["from"]).is_relative_to(python.parents[1])
    assert told["labels"] == ["a", "b", "a"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"c.c", "c.h", "python.py"} <= written


def test_the_command_is_installed(python: Path, tmp_path: Path):
    command = [str(python.with_name("treekit")), "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert treekit.__version__ in done.stdout
