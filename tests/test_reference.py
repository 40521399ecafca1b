"""The reference page of the contract says what the docstrings say, and these say everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treekit.testing import reference
from treekit.testing.reference import markdown

PAGE = Path(__file__).resolve().parents[1] / "plugins" / "CONTRACT.md"


def test_the_page_is_what_the_docstrings_say():
    told = reference.reference()
    assert PAGE.read_text(encoding="utf-8") == told, (
        "plugins/CONTRACT.md is stale: python -m treekit.testing.reference > plugins/CONTRACT.md"
    )


def test_every_hook_every_public_name_and_every_field_is_documented():
    assert reference.undocumented() == []


@pytest.mark.system
def test_the_page_is_written_by_the_module():
    command = [sys.executable, "-W", "error", "-m", "treekit.testing.reference"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode() == PAGE.read_text(encoding="utf-8")


SOURCE = '''
"""A module.

Fields of every record
----------------------
name : str
    Of the record.
"""
from dataclasses import dataclass

__all__ = ["KNOWN", "UNKNOWN", "Record", "Bare", "told", "silent"]

KNOWN = 1
"""A constant."""
UNKNOWN = 2

@dataclass
class Record:
    """A record.

    Attributes
    ----------
    first, second : int
        Two numbers.
    """

    name: str
    first: int
    second: int
    third: int

@dataclass
class Bare:
    only: int

def told(x, *, y=2):
    """A function of ``x``::

        told(1)

    and no more.
    """

def silent():
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_contract.py").write_text(SOURCE.lstrip(), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_contract", raising=False)
    monkeypatch.setattr(reference, "PARTS", (reference.Part("All of it", "a_contract"),))
    return "a_contract"


def test_what_has_no_words_is_named(module: str):
    assert reference.undocumented() == [
        f"{module}.{name}" for name in ("UNKNOWN", "Record.third", "Bare", "silent")
    ]


def test_a_hook_without_words_is_named_though_it_is_not_public(
    module: str, monkeypatch: pytest.MonkeyPatch
):
    import a_contract

    def hook():
        pass

    monkeypatch.setattr(a_contract, "treekit_sorters", hook, raising=False)
    assert f"{module}.treekit_sorters" in reference.undocumented()


def test_docstrings_become_markdown(module: str):
    page = reference.reference()
    assert (
        "### `told(x, *, y=2)`\n\nA function of `x`:\n\n```\ntold(1)\n```\n\nand no more.\n" in page
    )
    assert "*Attributes*\n\n- `first`, `second` (int): Two numbers.\n" in page
    assert "### Fields of every record\n\n- `name` (str): Of the record.\n" in page
    assert "### `KNOWN`\n\nA constant.\n" in page


def test_lists_and_examples_keep_their_form():
    text = "A.\n\nReturns\n-------\n(n,) float64\n    Numbers::\n\n        x = 1\n\n    And on.\n"
    assert markdown(text, "#") == (
        "A.\n\n*Returns*\n\n- (n,) float64: Numbers:\n\n  ```\n  x = 1\n  ```\n\n  And on.\n"
    )
    assert markdown("B\n\n>>> f()\n1\n\nC", "#").startswith("B\n\n```\n>>> f()\n")
