"""The gallery shows every package in plugins/, of the kinds that it is, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from treekit.record_checks import KINDS

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
TEXT = (PLUGINS / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| \[([\w-]+)\]\(\1\) \| (.*) \|$", TEXT, re.MULTILINE))
PACKAGES = sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml"))


def hooks(package: Path) -> list[str]:
    """Kinds of the components that a package lists."""
    sources = [path for path in package.rglob("*.py") if "tests" not in path.parts]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return [kind.name for kind in KINDS.values() if f"def {kind.hook}(" in text]


def test_every_package_has_a_line_and_no_other():
    assert list(ROWS) == [package.name for package in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_line_tells_the_kinds_what_it_does_and_where_to_see_it(package: Path):
    kinds, what, seen = (cell.strip() for cell in ROWS[package.name].split(" | "))
    assert kinds.split(", ") == hooks(package)
    assert len(what) > 20
    assert re.fullmatch(r"`.+`|!?\[.+\]\(.+\)", seen)
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == package.name


def test_links_lead_to_what_is_there():
    for page in ("README.md", "TUTORIAL.md"):
        text = (PLUGINS / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            place = PLUGINS / path if path else PLUGINS / page
            assert place.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in slugs, target


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_figure_of_a_package_is_shown(package: Path):
    figures = [path.name for path in package.rglob("*") if path.suffix in (".svg", ".png")]
    assert not figures or any(name in ROWS[package.name] for name in figures)
