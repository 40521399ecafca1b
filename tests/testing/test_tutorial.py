"""The components of the plugin tutorial pass the contract checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import treekit
from treekit import testing
from treekit.testing import check_criterion, check_pruner, check_splitter
from treekit.testing.check_splitter import CLAIMED, FIND_LAWS, _check_gains, make_splitter_subject

pytestmark = pytest.mark.matrix

TEXT = (Path(__file__).parents[2] / "plugins" / "TUTORIAL.md").read_text(encoding="utf-8")

CHECKS: dict[type, Any] = {
    treekit.Criterion: check_criterion,
    treekit.Splitter: check_splitter,
    treekit.Pruner: check_pruner,
}

BROKEN = {"undivided": "doubling-weights-changes-nothing"}
"""Component whose fault the tutorial shows, and the law that it breaks."""


def make_one_trainer(record: treekit.Splitter, given: Any) -> Any:
    """Train with one criterion: each takes three minutes to compile with the splitter."""
    subject = make_splitter_subject(record, given)
    return replace(subject, trainers=subject.trainers[:1])


def iterate_records(text: str) -> Iterator[Any]:
    """Yield the records in the blocks of a page, each once; blocks may use names of former ones."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    seen: set[int] = set()
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if "treekit_dkm import" in code or "GridSearchCV" in code:
            continue  # the test of a package; no record
        exec(code, names)
        if "treekit_criteria" in names:
            yield from names.pop("treekit_criteria")()
        for value in list(names.values()):
            if type(value) in CHECKS and id(value) not in seen:
                seen.add(id(value))
                yield value


@pytest.mark.filterwarnings("ignore::treekit.TreekitWarning")
def test_every_tutorial_component_passes_the_contract_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stages = (FIND_LAWS, ((_check_gains, CLAIMED),))
    monkeypatch.setitem(testing._KINDS, "splitter", (make_one_trainer, stages))
    first_broken = {}
    for record in iterate_records(TEXT):
        report = CHECKS[type(record)](record, fail=False)
        first_broken[record.name] = next((one.law.name for one in report.breaches), None)
    capsys.readouterr()
    assert first_broken == {name: BROKEN.get(name) for name in first_broken}
    assert {"dkm", "halves", "even", "rate", "tsallis", "noted"} <= first_broken.keys()
