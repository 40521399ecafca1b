"""The wheel and the source distribution contain what treekit needs outside the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from importlib.metadata import requires
from pathlib import Path

import pytest

import treekit
from hatch_build import _IMPORTED_BY_BUILD
from treekit.data import DEMO_TARGET, demo_table

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


FIRST_USE = """
import hashlib, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if sys.argv[1] == "without":
    sys.meta_path.insert(0, Refuse())
import treekit
from treekit.data import demo_table

forest = treekit.train(demo_table(), "surgical_lesion", ensemble="forest", trees=20, seed=0)
shares = forest.predict_proba(demo_table())
tree = treekit.train(demo_table(), "surgical_lesion", pruner="cost_complexity", seed=0)
tree.rules()
files = [treekit.export(tree, to, f"out/{to}")[0] for to in ("onnx", "c", "python", "rules")]
assert treekit.verify(tree, [file for file in files if file.suffix != ".c"]).equal
forest.save("forest.treekit")
print(json.dumps({
    "from": treekit.__file__,
    "numba": "numba" in sys.modules,
    "shares": hashlib.sha256(shares.tobytes()).hexdigest(),
    "rules": str(tree.rules()),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the interpreter that runs the tests."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def build_wheel(folder: Path, source: Path = ROOT, **settings: str) -> Path:
    """Build a wheel of a folder with environment variables."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    environment = os.environ | settings
    subprocess.run([*build, str(source)], check=True, capture_output=True, env=environment)
    (built,) = folder.glob("treekit_*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment in which the wheel is installed."""
    return install_wheel(wheel, tmp_path_factory.mktemp("environment"))


def install_wheel(wheel: Path, home: Path) -> Path:
    """Install a wheel in a fresh environment; return its interpreter.

    The libraries that treekit needs come from the environment that runs the
    tests, through a path file; its own treekit is shadowed by the wheel's.
    """
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


def test_wheel_contains_templates_tables_and_type_information(wheel: Path):
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


def test_wheel_exports_outside_the_checkout(python: Path, tmp_path: Path):
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


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built as a workflow of GitHub builds it, and unpacked."""
    folder = tmp_path_factory.mktemp("source")
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder)]
    place = {"GITHUB_REPOSITORY": "them/forest", "GITHUB_REF_NAME": "v9"}
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, env=os.environ | place)
    (built,) = folder.glob("treekit_ml-*.tar.gz")
    with tarfile.open(built) as archive:
        archive.extractall(folder, filter="data")
    return folder / built.name.removesuffix(".tar.gz")


def test_the_source_runs_the_demo_of_the_readme(source: Path, tmp_path: Path):
    """The README's first command, ``pip install . && treekit demo``, on the source's files."""
    python = install_wheel(build_wheel(tmp_path / "dist", source), tmp_path / "environment")
    command = [str(python.with_name("treekit")), "demo", "--out", "made"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "equal to the model, bit for bit" in " ".join(done.stdout.split())
    assert list((tmp_path / "made").glob("*.onnx"))
    where = [str(python), "-c", "import treekit; print(treekit.__file__)"]
    place = subprocess.run(
        where, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True
    ).stdout
    assert Path(place.strip()).is_relative_to(tmp_path)


def test_the_index_page_links_to_the_files_of_the_repository(source: Path, wheel: Path):
    found = message_from_bytes((source / "PKG-INFO").read_bytes())
    assert (found["Metadata-Version"], found["License-Expression"]) == ("2.4", "Apache-2.0")
    home = "https://github.com/them/forest"
    assert f"Homepage, {home}" in found.get_all("Project-URL")
    readme = found.get_payload(decode=True).decode()
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", readme)
    assert links
    for link in map("".join, links):
        assert link.startswith("https://"), link
        if link.startswith(home):
            path = re.sub(r".*/(blob|raw)/v9/|#.*", "", link)
            assert (ROOT / path).exists(), link
    # Elsewhere the addresses are unknown, and the readme is that of the checkout.
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        plain = message_from_bytes(archive.read(name))
    assert plain.get_payload(decode=True) == (ROOT / "README.md").read_bytes()


def test_a_wheel_needs_no_numba_for_the_demo_and_has_the_models_of_numba(
    wheel: Path, python: Path, tmp_path: Path
):
    names = zipfile.ZipFile(wheel).namelist()
    assert "treekit/kernels/machine_code/library.json" in names
    assert re.search(r"-py3-none-(?!any)\w+\.whl$", wheel.name)
    told = []
    for command, how, settings in (
        ([str(python), "-I"], "without", {}),
        ([sys.executable], "with", {"PYTHONPATH": str(ROOT), "TREEKIT_KERNELS": "none"}),
    ):
        folder = tmp_path / how
        folder.mkdir()
        done = subprocess.run(
            [*command, "-c", FIRST_USE, how], cwd=folder, env=os.environ | settings,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout) | {"file": (folder / "forest.treekit").read_bytes()})
    first, usual = told
    assert Path(first["from"]).is_relative_to(python.parents[1])
    assert (first.pop("numba"), usual.pop("numba")) == (False, True)
    assert (first["shares"], first["rules"]) == (usual["shares"], usual["rules"])
    assert first["file"] == usual["file"]


BUILD = """
import sys
from importlib.metadata import packages_distributions

allowed, of_module = set(sys.argv[1:]), packages_distributions()

class Refuser:
    def find_spec(self, name, path=None, target=None):
        owners = {one.lower() for one in of_module.get(name.partition(".")[0], ())}
        if path is None and owners and not owners & allowed:
            raise ImportError(f"{name} is not asked for")

sys.meta_path.insert(0, Refuser())
import treekit.kernel_library.build
from treekit.kernel_library.variants import find_place, iterate_kernels, iterate_pointers
print(*(find_place(name) for name, _ in iterate_kernels()), *iterate_pointers())
"""


def test_the_build_imports_only_what_it_requires():
    needed, waiting = {"treekit-ml"}, set(_IMPORTED_BY_BUILD)
    while waiting:  # and what pip installs with these
        needed.add(name := waiting.pop())
        asked = (one for one in requires(name) or () if "extra ==" not in one)
        waiting |= {re.split(r"[^\w-]", one)[0].lower() for one in asked} - needed
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *needed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_wheel_without_kernels_suits_any_platform(tmp_path: Path):
    built = build_wheel(tmp_path, TREEKIT_KERNELS="none")
    assert built.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(built).namelist() if "machine_code" in name]


SMALL = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import treekit
from treekit.cli import main
from treekit.serve.models.served_model import Served

model = treekit.load(sys.argv[1])
row = {column.name: [None] for column in model.schema.columns}
served = Served("m", "1", "", model)
inputs = served.parse_inputs(served.make_sample_inputs(2))
served.compute_outputs(inputs, [*served.default_outputs, *served.explanation_outputs])
print(json.dumps({
    "from": treekit.__file__,
    "shares": model.predict_proba(row).tolist(),
    "reason": str(model.explain({name: cells[0] for name, cells in row.items()})),
}))
sys.argv[1:] = ["train", "table.csv", "--target", "y", "-o", "m.treekit"]
main()
"""


def test_runtime_install_scores_explains_and_serves_without_training_libraries(tmp_path: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    small = tomllib.loads((ROOT / "tools/runtime/pyproject.toml").read_text(encoding="utf-8"))
    left = set(project["dependencies"]) - set(small["project"]["dependencies"])
    names = {re.split(r"[>=]", one)[0].replace("scikit-learn", "sklearn") for one in left}
    assert {"numba", "onnx", "pyarrow", "skl2onnx", "sklearn"} <= names
    wheel = build_wheel(tmp_path / "dist", ROOT / "tools/runtime")
    assert wheel.name.startswith("treekit_runtime-")
    python = install_wheel(wheel, tmp_path / "environment")
    model = treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=5, seed=0)
    model.save(tmp_path / "m.treekit")
    (tmp_path / "table.csv").write_text("x,y\n1,a\n2,b\n", encoding="utf-8")
    code = SMALL % sorted({*names, "llvmlite", "scipy"})
    done = subprocess.run(
        [str(python), "-I", "-c", code, "m.treekit"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "pip install treekit-ml" in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert Path(told["from"]).is_relative_to(tmp_path)
    row = {column.name: [None] for column in model.schema.columns}
    assert told["shares"] == model.predict_proba(row).tolist()
    assert told["reason"] == str(model.explain(dict.fromkeys(row)))
