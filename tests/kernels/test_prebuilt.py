"""Machine code of a wheel: where it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numba
import pytest

from treekit.kernels import prebuilt
from treekit.kernels.prebuilt import FEATURES, describe_process, explain_refusal, find_mismatch

HERE = describe_process()
V3 = {**HERE, "processor": "x86-64-v3"}
ALL = frozenset(FEATURES["x86-64-v3"])


def test_machine_code_built_alike_is_used():
    assert find_mismatch(V3, HERE, ALL) is None
    assert find_mismatch({**HERE, "processor": "generic"}, HERE, frozenset()) is None


@pytest.mark.parametrize("fact", ["numba", "llvmlite", "python", "platform", "sources"])
def test_another_fact_is_refused_by_name(fact: str):
    mismatch = find_mismatch({**V3, fact: "other"}, HERE, ALL)
    assert mismatch == f"{fact}: built for other, here {HERE[fact]}"
    absent = {name: value for name, value in V3.items() if name != fact}
    assert find_mismatch(absent, HERE, ALL) == f"{fact}: built for None, here {HERE[fact]}"


@pytest.mark.parametrize("feature", FEATURES["x86-64-v3"])
def test_a_processor_without_a_feature_is_refused(feature: str):
    mismatch = find_mismatch(V3, HERE, ALL - {feature})
    assert mismatch == f"processor: x86-64-v3 has {feature}, this one has not"


def test_an_unknown_processor_is_refused():
    assert "unknown" in (find_mismatch({**HERE, "processor": "x86-64-v9"}, HERE, ALL) or "")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a wheel with machine code for any processor of this platform."""
    (tmp_path / "manifest.json").write_text(json.dumps({**HERE, "processor": "generic"}))
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    for name in ("CPU_NAME", "CPU_FEATURES"):
        monkeypatch.setattr(numba.core.config, name, None)
    monkeypatch.delenv("TREEKIT_MACHINE_CODE", raising=False)
    return tmp_path


def test_settings_of_the_user_come_first(wheel: Path, monkeypatch: pytest.MonkeyPatch):
    assert explain_refusal() is None
    monkeypatch.setenv("TREEKIT_MACHINE_CODE", "0")
    assert explain_refusal() == "TREEKIT_MACHINE_CODE is 0"
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["CPU_NAME", "CPU_FEATURES"])
def test_code_for_another_processor_is_not_replaced(
    name: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(numba.core.config, name, "generic")
    assert "NUMBA_CPU_NAME" in (explain_refusal() or "")


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_damaged_manifest_is_none(text: str, wheel: Path):
    (wheel / "manifest.json").write_text(text)
    assert explain_refusal() == "this installation brings none"


def test_an_installation_without_machine_code_is_refused(wheel: Path):
    (wheel / "manifest.json").unlink()
    assert explain_refusal() == "this installation brings none"
