"""`treekit.export`: one call, all files or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.models import mixed_schema, random_model
from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export import export
from treekit.export.builtin import treekit_exporters

MODEL = random_model(0, mixed_schema())
PAIR = Exporter("pair", ".a", lambda _, name: {f"{name}.a": b"1", f"{name}.b": b"2"})
BUILTIN = {exporter.name: exporter for exporter in treekit_exporters()}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("onnx", ["m.onnx"]),
        ("c", ["m.c", "m.h"]),
        ("python", ["m.py"]),
        ("rules", ["m.rules.txt"]),
    ],
)
def test_every_builtin_target_is_written_by_name(tmp_path, target, names):
    paths = export(MODEL, target, tmp_path / "new" / "folder" / names[0])
    assert paths == [tmp_path / "new" / "folder" / name for name in names]
    assert files(tmp_path / "new" / "folder") == {p.name: p.read_bytes() for p in paths}
    assert export(MODEL, target, str(tmp_path / "m")) == [tmp_path / name for name in names]


def test_an_exporter_may_be_given_itself(tmp_path):
    export(MODEL, PAIR, tmp_path / "x.a")
    assert files(tmp_path) == {"x.a": b"1", "x.b": b"2"}


def test_settings_reach_the_exporter_checked(tmp_path):
    export(MODEL, BUILTIN["c"], tmp_path / "m.c", form="table")
    assert '"table"' in (tmp_path / "m.h").read_text()
    with pytest.raises(SettingError, match="one of auto, if_else, hybrid, table"):
        export(MODEL, BUILTIN["c"], tmp_path / "m.c", form="tables")
    with pytest.raises(SettingError, match="no setting 'shape'"):
        export(MODEL, BUILTIN["python"], tmp_path / "m.py", shape=1)


def test_defaults_of_settings_are_filled_in(tmp_path):
    def write(_, name, **settings):
        return {f"{name}.t": repr(settings).encode()}

    exporter = Exporter("t", ".t", write, (Setting("depth", 3, "how deep"),))
    (path,) = export(MODEL, exporter, tmp_path / "m.t")
    assert path.read_text() == "{'depth': 3}"


@pytest.mark.parametrize("name", ["m.c", "m.ONNX", "m.rules.txt", "m.A", ".a", ""])
def test_another_target_s_ending_is_refused(tmp_path, name):
    with pytest.raises(ExportError, match=r"must end in '\.a'"):
        export(MODEL, PAIR, f"{tmp_path}/{name}" if name else "")
    assert files(tmp_path) == {}


@pytest.mark.parametrize("name", ["labor.c45", "model.v1", "m.a.gz"])
def test_an_ending_of_no_target_is_part_of_the_name(tmp_path, name):
    assert export(MODEL, PAIR, tmp_path / name) == [
        tmp_path / f"{name}.a",
        tmp_path / f"{name}.b",
    ]


@pytest.mark.parametrize("name", ["m", "m.rules", "m.rules.txt"])
def test_an_ending_of_two_parts_may_have_been_begun(tmp_path, name):
    assert export(MODEL, BUILTIN["rules"], tmp_path / name) == [tmp_path / "m.rules.txt"]


@pytest.mark.parametrize("name", ["../m.a", "/m.a", "folder/m.a", "..", "", "a\\b"])
def test_an_exporter_cannot_write_elsewhere(tmp_path, name):
    exporter = Exporter("sly", ".a", lambda *_: {name: b""})
    with pytest.raises(PluginError, match=r"exporter .sly. .* plain names"):
        export(MODEL, exporter, tmp_path / "inner" / "m.a")
    assert list(tmp_path.rglob("*.a")) == []


def test_a_failure_leaves_earlier_files_as_they_were(tmp_path):
    export(MODEL, PAIR, tmp_path / "x.a")
    broken = Exporter("pair", ".a", lambda _, name: {f"{name}.a": b"new", f"{name}.b": None})
    with pytest.raises(PluginError, match=r"returned a NoneType for .x\.b., not bytes"):
        export(MODEL, broken, tmp_path / "x.a")
    assert files(tmp_path) == {"x.a": b"1", "x.b": b"2"}


def test_a_folder_in_the_way_is_an_error_in_words(tmp_path):
    (tmp_path / "x.a").mkdir()
    with pytest.raises(ExportError, match="cannot write"):
        export(MODEL, PAIR, tmp_path / "x.a")
    assert files(tmp_path) == {}


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for target in ("c", "python"):
        for folder in ("one", "two"):
            export(MODEL, BUILTIN[target], tmp_path / folder / f"m{BUILTIN[target].suffix}")
    assert files(tmp_path / "one") == files(tmp_path / "two")
