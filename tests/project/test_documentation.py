"""The documentation builds without warnings, and its links resolve."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import treekit
from treekit import registry
from treekit.cli import main
from treekit.training.settings import PRESETS, SETTINGS

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """Targets of links and sources of pictures, and names of anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def check_links(site: Path) -> None:
    """Links lead to files and anchors of the site."""
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 60
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[place].anchors if place in pages else {unquote(parts.fragment)}
            if not place.exists() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


def check_examples(site: Path) -> None:
    """Examples are shown with their pictures and what they print."""
    gallery = site / "generated" / "gallery"
    for name, pictures in (("criterion_plugin", 1), ("missing_values", 3), ("decision_regions", 2)):
        text = (gallery / f"{name}.html").read_text(encoding="utf-8")
        assert len(set(re.findall(rf"_images/sphx_glr_{name}_\d+\.svg", text))) == pictures
        assert "bit for bit" in text


def check_reference(site: Path) -> None:
    """Every public name, setting, component and command is documented."""

    def words(*names: str) -> set[str]:
        pages = [site / name for name in names]
        return set(re.findall(r"[\w.-]+", " ".join(p.read_text(encoding="utf-8") for p in pages)))

    names = {name.rpartition(".")[2] for name in words("api.html", "contract.html")}
    assert set(treekit.__all__) - names - {"hookimpl"} == set()
    settings = words("generated/settings.html")
    builtin = {c.name for c in registry.components() if not registry.is_foreign(c.record)}
    assert builtin
    assert {*(setting.name for setting in SETTINGS), *PRESETS, *builtin} - settings == set()
    assert set(main.commands) - words("generated/commands.html") == set()


def test_documentation_builds_without_warnings_and_is_complete(tmp_path: Path) -> None:
    # One test: a build writes to docs/generated/, which two workers must not do at once.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    check_links(tmp_path)
    check_examples(tmp_path)
    check_reference(tmp_path)
