"""Print the section of a release in the changelog, if the tag fits the files of the repository.

Usage: ``python tools/release_notes.py v0.2.0``
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

VERSIONS = {
    "treekit/_version.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "conda/recipe.yaml": r"^  version: (\d.+)$",
}
"""Files that state the version, and the line that does."""


def read_versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version that each file states."""
    found = {}
    for name, pattern in VERSIONS.items():
        line = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = line[1] if line else "none"
    return found


def find_section(changelog: str, version: str) -> str:
    """Return the text below ``## [version] - date``, without the heading.

    Raises
    ------
    ValueError
        If there is no such heading, it has no date, or nothing is below it.
    """
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    found = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise ValueError(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with text; rename "
            "'## [Unreleased]' to it, and begin a new one above"
        )
    return found[1].strip() + "\n"


def make_notes(tag: str, root: Path = ROOT) -> str:
    """Return the notes of a release; raise `ValueError` if a file states another version."""
    version = tag.removeprefix("v")
    for name, stated in read_versions(root).items():
        if stated != version:
            raise ValueError(f"the tag is {tag}, but {name} states {stated}; make them equal")
    return find_section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def main() -> None:
    """Print the notes of the tag given as argument."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    try:
        sys.stdout.write(make_notes(parser.parse_args().tag))
    except ValueError as error:
        sys.exit(f"release_notes: {error}")


if __name__ == "__main__":
    main()
