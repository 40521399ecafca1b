"""The packages of `plugins/` use only the contract, or are pinned to one version of treekit."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import treekit
from tests.snapshots.public_api import FACADES, list_private_names

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
ROW = re.compile(r"^\| \[(treekit-[\w-]+)\]\(\1\) \| [^|]+ \| ([^|]+) \|", re.M)
USES = dict(ROW.findall((PLUGINS / "README.md").read_text(encoding="utf-8")))
"""The third column of the table of `plugins/README.md`: contract or internals."""

CONTRACT = sorted(name for name in USES if USES[name] == "contract")
INTERNALS = sorted(name for name in USES if USES[name] == "internals")
SENTENCE = (
    "This package also uses parts of treekit outside the [contract](../CONTRACT.md), "
    "which may change with any release, so each version of it needs the same version of treekit."
)


def read_project(name: str) -> dict[str, Any]:
    text = (PLUGINS / name / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def list_shipped(name: str) -> list[Path]:
    """The modules that the package installs."""
    target = read_project(name)["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = []
    for part in target.get("packages", []) + target.get("only-include", []):
        path = PLUGINS / name / part
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert found
    return found


def find_private_names(name: str) -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in list_shipped(name))
    return set().union(*map(list_private_names, texts))


def find_requirement(name: str) -> str:
    """What follows the name of treekit in the package's dependencies."""
    project = read_project(name)["project"]
    (found,) = (one for one in project["dependencies"] if one.startswith("treekit-ml"))
    return found.removeprefix("treekit-ml")


def test_each_package_is_listed_as_contract_or_internals():
    assert set(USES) == {path.parent.name for path in PLUGINS.glob("*/pyproject.toml")}
    assert sorted(CONTRACT + INTERNALS) == sorted(USES)


def test_stated_number_of_contract_packages_is_correct():
    text = (PLUGINS / "README.md").read_text(encoding="utf-8")
    number = {7: "Seven", 8: "Eight", 9: "Nine", 10: "Ten"}[len(CONTRACT)]
    assert f"\n{number} use only treekit's [contract](CONTRACT.md)" in text


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_packages_use_only_the_facades(name: str):
    assert find_private_names(name) == set()
    assert find_requirement(name).startswith(">=")
    text = (PLUGINS / name / "README.md").read_text(encoding="utf-8")
    assert "uses parts of treekit outside" not in text


@pytest.mark.parametrize("name", INTERNALS)
def test_packages_that_use_internals_are_pinned_and_state_it(name: str):
    assert find_requirement(name) == f"=={treekit.__version__}"
    assert read_project(name)["project"]["version"] == treekit.__version__
    text = (PLUGINS / name / "README.md").read_text(encoding="utf-8")
    assert SENTENCE in " ".join(text.split())
    assert find_private_names(name), "it uses the façades alone: make it one by contract"


@pytest.mark.parametrize("name", USES)
def test_packages_define_no_module_getattr(name: str):
    for path in list_shipped(name):
        assert "\ndef __getattr__(" not in path.read_text(encoding="utf-8"), path


def test_the_contract_lists_the_facades_for_plugins():
    text = (PLUGINS / "CONTRACT.md").read_text(encoding="utf-8")
    contract = set(re.findall(r"\[(treekit\.[\w.]+)\]\(", text))
    reference = (ROOT / "docs/contract.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"automodule:: ([\w.]+)", reference))
    assert contract == documented == set(FACADES) - {"treekit", "treekit.data", "treekit.errors"}


@pytest.mark.parametrize("name", ["CONTRACT.md", "TUTORIAL.md"])
def test_examples_for_authors_use_only_the_facades(name: str):
    text = (PLUGINS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    assert [list_private_names(block) for block in blocks] == [set()] * len(blocks)


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("from treekit.model.links import Link", {"treekit.model.links.Link"}),
        ("from treekit import registry", {"treekit.registry"}),
        ("import treekit.grow.recipe as r", {"treekit.grow.recipe"}),
        ("import treekit\ntreekit.registry.get('criterion', 'gini')", {"treekit.registry"}),
        ("from treekit.splitting import _sum_terms", {"treekit.splitting._sum_terms"}),
        ("from treekit.kernels.records import Rows, Table", set()),
        ("import treekit\nfrom treekit_zig import x\ntreekit.train", set()),
    ],
)
def test_list_private_names_finds_names_outside_the_facades(code: str, private: set[str]):
    assert list_private_names(code) == private
