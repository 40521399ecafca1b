"""Model files: equal after loading, written completely or not at all, safe to read."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.extreme_rows import extreme_rows
from tests.extremes import EXTREMES
from tests.reference import evaluate
from tests.strategies import models
from treekit import DecisionTreeClassifier, RandomForestClassifier, SettingError, registry
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ModelFileError
from treekit.model import model_file as archive
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.fixed_point import MASS
from treekit.model.json_values import from_json, to_json
from treekit.model.model import Model, hash_model, make_model
from treekit.model.model_file import (
    FORMAT_VERSION,
    decode_array,
    encode_array,
    load,
    narrow_dtype,
    save,
)
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.model.tree import FIELD_DTYPES, Split, Tree
from treekit.model.validation import check_tree

# ---------------------------------------------------------------- store

SETTINGS = {
    "trees": 100,
    "rate": 0.1,
    "limit": math.inf,
    "floor": -math.inf,
    "nested": {"$float": 1, "$": None, "": [True, {"a": "ü \u2028 \0"}]},
}


def small_model(**more) -> Model:
    schema = Schema(
        columns=(Column("age"), Column("colour", "nominal", ("red", "green", "blue"))),
        classes=("no", "yes"),
    )
    root = threshold(
        "age",
        2.5,
        subset(
            "colour",
            ["red"],
            leaf([1, 0.5]),
            is_missing("age", leaf([2, 0]), leaf([0, 3])),
            absent=["blue"],
        ),
        multiway(
            "colour", {"green": leaf([0, 1]), "red": leaf([4, 4]), "blue": leaf([1, 2])}, missing=1
        ),
        missing=0,
    )
    trees = [build_tree(root, schema), build_tree(leaf([1, 2]), schema)]
    return make_model(schema, trees, **more)


def number_model() -> Model:
    schema = Schema(columns=(Column("x"),), target="price", task="regression", dtype="float64")
    tree = build_tree(threshold(0, 0.1, leaf(-1e300), leaf(math.pi)), schema)
    return make_model(schema, [tree, tree])


def assert_same_model(a: Model, b: Model) -> None:
    for name in ("schema", "exponent", "missing", "unknown", "settings", "provenance", "n_trees"):
        assert getattr(a, name) == getattr(b, name), name
    np.testing.assert_array_equal(a.units, b.units)
    for one, other in zip(a.trees, b.trees, strict=True):
        for name in FIELD_DTYPES:
            first, second = getattr(one, name), getattr(other, name)
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second, err_msg=name)


def rewritten(path: Path, changes: dict[str, bytes | None], **zip_arguments) -> Path:
    """The file again as a flawless zip with some entries changed (None: removed)."""
    with zipfile.ZipFile(path) as archive_:
        entries = {name: archive_.read(name) for name in archive_.namelist()}
    entries |= changes
    with zipfile.ZipFile(path, "w", **zip_arguments) as archive_:
        for name, content in entries.items():
            if content is not None:
                archive_.writestr(name, content)
    return path


def entry(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive_:
        return archive_.read(name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.treekit"
    save(small_model(settings=SETTINGS), path)
    return path


# What comes back


@settings(
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(model=models())
def test_any_saved_model_is_loaded_equal(model, tmp_path):
    path = tmp_path / "any.treekit"
    save(model, path)
    assert_same_model(load(path), model)


@pytest.mark.parametrize("model", [small_model(), number_model()])
def test_policies_settings_and_provenance_are_saved(model, tmp_path):
    full = Model(
        **{name: getattr(model, name) for name in ("schema", "trees", "units", "exponent")},
        missing="error",
        unknown="error",
        settings=SETTINGS,
        provenance={"treekit": "0.1", "plugins": [{"name": "hellinger", "version": "1"}]},
    )
    full.save(tmp_path / "m.treekit")
    assert_same_model(load(tmp_path / "m.treekit"), full)


@pytest.mark.parametrize(
    "classes",
    [(False, True), (2**70, -1), (0.5, -0.0, 1e300), ("'; --", "\\", "好🎉\n"), (1.0, 2.0)],
)
def test_labels_keep_value_and_type(classes, tmp_path):
    schema = Schema(columns=(Column('"],\0{{x}}'),), classes=classes)
    save(make_model(schema, [build_tree(leaf([1] * len(classes)), schema)]), tmp_path / "m")
    back = load(tmp_path / "m").schema
    assert [(type(c), c) for c in back.classes] == [(type(c), c) for c in classes]
    assert back == schema


def test_the_same_model_gives_the_same_bytes(saved, tmp_path):
    again = tmp_path / "again.treekit"
    save(load(saved), again)
    assert again.read_bytes() == saved.read_bytes()


def test_loaded_arrays_cannot_be_changed(saved):
    model = load(saved)
    with pytest.raises(ValueError, match="read-only"):
        model.units[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        model.trees[0].threshold[:] = 0


def test_numpy_reads_the_arrays_without_treekit(saved):
    with np.load(saved) as arrays:
        assert arrays["kind"].tolist() == [1, 2, 3, 0, 4, 0, 0, 0, 0, 0, 0]
        assert arrays["threshold"].dtype == np.float32
        assert arrays["value"].shape == (11, 2)
        assert arrays["first_child"].dtype == np.int8


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text("$af", max_size=3) | st.just("$float"), inner)
        ),
        max_leaves=8,
    )
)
def test_plain_values_are_encoded_and_decoded_by_json(value):
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


def test_nan_is_encoded_and_decoded_by_json():
    assert math.isnan(from_json(to_json([np.float64("nan")]))[0])


@pytest.mark.parametrize(
    "value", [{"$float": "1"}, {"$float": "inf", "b": 1}, {"$x": 1}, {"$float": [1]}]
)
def test_invalid_encoded_json_values_are_refused(value):
    with pytest.raises(ValueError, match=r"not a number|unknown \$ key"):
        from_json([value])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([0, 127]), np.int8),
        (np.array([0, 128]), np.int16),
        (np.array([-32769]), np.int32),
        (np.array([2**31]), np.int64),
        (np.array([-(2**63), 2**63 - 1]), np.int64),
        (np.array([], dtype=np.int64), np.int8),
        (np.array([0.5, np.nan, np.inf, -0.0]), np.float32),
        (np.array([0.1]), np.float64),
        (np.array([1e300]), np.float64),
        (np.array([1e-300]), np.float64),
    ],
)
def test_arrays_are_stored_in_the_narrowest_exact_type(array, expected):
    narrow = narrow_dtype(array)
    assert narrow.dtype == expected
    back = decode_array(encode_array(narrow), array.dtype)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (3, 4), (0, 2), (123456, 1)])
def test_arrays_are_written_byte_for_byte_as_numpy_does(shape):
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    for back in (
        decode_array(buffer.getvalue(), np.int32),
        np.load(io.BytesIO(encode_array(array))),
    ):
        assert (back.dtype, back.shape) == (array.dtype, shape)
        np.testing.assert_array_equal(back, array)


# Writing


def test_failed_save_keeps_the_old_file_and_no_temporary_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(number_model(), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_save_replaces_the_old_file_and_leaves_no_temporary_file(saved):
    save(number_model(), saved)
    assert_same_model(load(saved), number_model())
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_saved_file_has_the_permissions_of_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        save(small_model(), tmp_path / "m")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640


def test_save_to_a_symlink_writes_its_target(saved, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(saved)
    save(number_model(), link)
    assert link.is_symlink()
    assert_same_model(load(saved), number_model())


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": [set()]}, np.zeros(2), "\ud800"])
def test_settings_that_cannot_be_saved_are_refused_before_writing(value, tmp_path):
    with pytest.raises(ModelFileError, match="cannot save the model"):
        save(small_model(settings={"x": value}), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# Reading what a stranger sent


@pytest.mark.parametrize("usual", [FileNotFoundError, ModelFileError])
def test_missing_file_raises_file_not_found_error_and_model_file_error(tmp_path, usual):
    with pytest.raises(usual, match=r"^there is no model file '.*nothing\.treekit'; check"):
        load(tmp_path / "nothing.treekit")


def test_folder_given_as_model_file_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"^cannot read model file '.*': Is a directory"):
        load(tmp_path)


def test_missing_folders_are_created(tmp_path):
    small_model().save(tmp_path / "a" / "b" / "m.treekit")
    assert load(tmp_path / "a" / "b" / "m.treekit") is not None


def test_unwritable_path_is_named_as_given(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"^cannot write model file '.*/file/m\.treekit': ") as told:
        small_model().save(tmp_path / "file" / "m.treekit")
    assert isinstance(told.value, ModelFileError)
    assert ".tmp" not in str(told.value)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"hello" * 100, b"\x80\x04K\x01.", b"PK\x05\x06" + bytes(18)]
)
def test_a_file_that_is_not_a_model_is_refused(content, tmp_path):
    path = tmp_path / "stranger.bin"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"stranger\.bin"):
        load(path)


def test_error_for_a_newer_model_file_names_both_versions(saved):
    header = json.loads(entry(saved, "model.json")) | {
        "version": FORMAT_VERSION + 6,
        "novelty": [1],
    }
    rewritten(
        saved, {"model.json": json.dumps(header).encode(), "novelty.npy": b"", "kind.npy": None}
    )
    with pytest.raises(
        ModelFileError,
        match=f"version {FORMAT_VERSION + 6}.*up to version {FORMAT_VERSION}; upgrade",
    ):
        load(saved)


def header_with(saved: Path, **changes) -> None:
    header = json.loads(entry(saved, "model.json"))
    rewritten(saved, {"model.json": json.dumps(header | changes).encode()})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "not a model file: format 'other'"),
        ({"version": 0}, "not a model file"),
        ({"version": "1"}, "version"),
        ({"more": 1}, "unknown field `more`"),
        ({"missing": "guess"}, "missing"),
        ({"exponent": 1}, "votes"),
        ({"settings": {"$a": 1}}, r"unknown \$ key"),
        ({"settings": [1]}, "settings"),
        ({"schema": {"columns": [], "classes": ["a"]}}, "at least one input column"),
        ({"schema": {"columns": [{"name": "x"}] * 2, "classes": ["a"]}}, "appears twice"),
        (
            {"schema": {"columns": [{"name": "x"}], "classes": ["no", "yes"]}},
            "level_branch has shape",
        ),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(saved, changes, words):
    header_with(saved, **changes)
    with pytest.raises(ModelFileError, match=words):
        load(saved)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[" * 100_000, b'{"version":' + b"9" * 5000, b"\xff"]
)
def test_an_invalid_json_header_is_refused(saved, content):
    rewritten(saved, {"model.json": content})
    with pytest.raises(ModelFileError):
        load(saved)


def test_deeply_nested_settings_are_refused(saved):
    text = entry(saved, "model.json").decode()
    bomb = '{"a":' * 990 + "1" + "}" * 990
    rewritten(
        saved, {"model.json": text.replace('"provenance": {}', f'"provenance": {bomb}').encode()}
    )
    with pytest.raises(ModelFileError):
        load(saved)


def npy(values, dtype: str) -> bytes:
    return encode_array(np.array(values, dtype=dtype))


def npy_header(descr: str, shape: str, body: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("kind", b"", "no array in treekit"),
        ("kind", npy_header("'|O'", "(11,)", b"\x80\x04K\x01."), "no array in treekit"),
        ("kind", npy_header("[('a', '|u1')]", "(11,)", bytes(11)), "no array in treekit"),
        ("kind", npy_header("'|u1'", "__import__('os')", bytes(11)), "no array in treekit"),
        ("kind", npy_header("'<f1'", "(11,)", bytes(11)), "no array in treekit"),
        ("kind", npy_header("'|u4'", "(11,)", bytes(44)), "no array in treekit"),
        ("kind", npy_header("'|u1'", "(" * 200, bytes(11)), "no array in treekit"),
        ("kind", npy_header("'|u1'", "(999999999999, 999999999999)", bytes(11)), "as its shape"),
        ("kind", npy_header("'|u1'", "(10,)", bytes(11)), "not as its shape"),
        ("kind", npy([0] * 11, "<i4"), "expected uint8 or narrower"),
        ("kind", npy([-1] + [0] * 10, "|i1"), "the negative number -1"),
        ("level_branch", npy([2**32 - 1] + [0] * 5, "<u4"), "the number 4294967295"),
        ("kind", npy([[0] * 11], "|i1"), "has shape"),
        ("kind", npy([0] * 3, "|i1"), "has shape"),
        ("kind", npy([], "|i1"), "has shape"),
        ("threshold", npy([0] * 11, "<i4"), "an array of int32; expected float64"),
        ("feature", npy([0.0] * 11, "<f4"), "an array of float32; expected int32"),
        ("feature", npy([0] * 11, "<i8"), "int64; expected int32"),
        ("feature", npy([9] * 11, "|i1"), "level_branch has shape"),
        ("first_child", npy([1, 3, 0, -1, 8] + [-1] * 6, "|i1"), "after its parent"),
        ("first_child", npy([1, 3, 5, -1, 9] + [-1] * 6, "|i1"), "outside the tree"),
        ("level_branch", npy([0, 1, 2, 1, 0, 2], "|i1"), "a branch that does not exist"),
        ("value", npy([[1.0]] * 11, "<f4"), "value has shape"),
        ("value", npy([1.0] * 11, "<f4"), "value has shape"),
        ("value", npy([[np.nan, 1]] * 11, "<f4"), "not finite"),
        ("roots", npy([0, 11], "|i1"), "no parent or several"),
        ("roots", npy([0, 10, 10, 11], "|i1"), "at least one node"),
        ("roots", npy([0], "|i1"), "1 to 100000 trees"),
        ("roots", npy([[0, 10, 11]], "|i1"), "1 to 100000 trees"),
        ("roots", npy([-5, 10, 11], "|i1"), "at least one node"),
        ("units", npy([[2**23, 0]] * 6, "<i4"), "units has shape"),
        ("units", npy([[2**23, 1]] * 7, "<i4"), "votes of a leaf"),
        ("units", npy([[2**23 + 1, -1]] * 7, "<i4"), "votes of a leaf"),
        ("units", npy([[2**63 - 1, 2**63 - 1]] * 7, "<i8"), "votes of a leaf"),
    ],
)
def test_an_array_that_breaks_a_rule_is_refused(saved, name, content, words):
    rewritten(saved, {f"{name}.npy": content})
    with pytest.raises(ModelFileError, match=words):
        load(saved)


@pytest.mark.parametrize(
    ("changes", "units", "words"),
    [
        ({"exponent": 5000}, None, "exponent 5000 is out of range"),
        ({"exponent": -5000}, None, "exponent -5000 is out of range"),
        ({}, [2**59 + 2**8, 0, 0, 0], "leaf value exceeds the maximum"),
        ({}, [2**54 + 1, 0, 0, 0], "more than 53 significant bits"),
        ({}, [-(2**63), 0, 0, 0], "leaf value exceeds the maximum"),
        ({"exponent": 1000}, [2**30, 0, 0, 0], "leaf value exceeds the maximum"),
    ],
)
def test_regression_integers_beyond_the_grid_are_refused(tmp_path, changes, units, words):
    path = tmp_path / "m"
    save(number_model(), path)
    header_with(path, **changes)
    if units is not None:
        rewritten(path, {"units.npy": npy(np.reshape(units, (4, 1)), "<i8")})
    with pytest.raises(ModelFileError, match=words):
        load(path)


def test_missing_and_unknown_entries_are_refused(saved):
    rewritten(saved, {"gain.npy": None, "../evil": b"x"})
    with pytest.raises(ModelFileError, match=r"missing .*gain\.npy.*unknown .*\.\./evil"):
        load(saved)


def test_a_file_without_a_header_is_refused(saved):
    rewritten(saved, {"model.json": None})
    with pytest.raises(ModelFileError, match=r"no entry 'model\.json'"):
        load(saved)


def test_compressed_entries_are_refused_before_decompression(saved):
    rewritten(saved, {"kind.npy": bytes(10**7)}, compression=zipfile.ZIP_DEFLATED)
    assert saved.stat().st_size < 10**6
    started = time.perf_counter()
    with pytest.raises(ModelFileError, match="compressed"):
        load(saved)
    assert time.perf_counter() - started < 1


def test_entries_that_share_bytes_are_refused(saved):
    # A quine-like bomb: many directory records that point at one large entry.
    content = bytearray(saved.read_bytes())
    end = content.rindex(b"PK\x05\x06")
    _, _, _, _, count, size, start, _ = struct.unpack("<IHHHHIIH", content[end:])
    directory = bytes(content[start : start + size])
    first = directory[: directory.index(b"PK\x01\x02", 4)]
    extra = b"".join(first.replace(b"model.json", f"model{i:05d}".encode()) for i in range(50))
    tail = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, count + 50, count + 50, size + len(extra), start, 0
    )
    saved.write_bytes(bytes(content[:start]) + directory + extra + tail)
    with pytest.raises(ModelFileError, match=r"exceed the file size|differ|damaged"):
        load(saved)


def test_an_entry_that_appears_twice_is_refused(saved):
    with zipfile.ZipFile(saved, "a") as archive_, pytest.warns(UserWarning, match="Duplicate"):
        archive_.writestr("kind.npy", b"")
    with pytest.raises(ModelFileError, match="twice"):
        load(saved)


def check_harmless(path: Path) -> bool:
    """Whether the file still loads; then the model must be sound enough to score."""
    try:
        model = load(path)
    except ModelFileError:
        return False
    for tree in model.trees:
        check_tree(tree, model.schema)
    sum_leaf_values(model, np.zeros((3, model.schema.n_features)))
    return True


@pytest.mark.parametrize("model", [small_model(settings=SETTINGS), number_model()])
def test_damaged_files_raise_model_file_error_or_load_a_valid_model(model, tmp_path):
    path = tmp_path / "m"
    save(model, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for round_ in range(300):
        content = bytearray(whole)
        if round_ % 3 == 0:
            del content[int(rng.integers(len(content))) :]
        elif round_ % 3 == 1:
            for at in rng.integers(len(content), size=int(rng.integers(1, 4))):
                content[at] ^= 1 << int(rng.integers(8))
        else:
            # The directory at the end is where a zip reader decides everything.
            at = int(rng.integers(len(content) - 1200, len(content)))
            content[at] = int(rng.integers(256))
        path.write_bytes(content)
        check_harmless(path)
        if round_ % 3 == 0:
            with pytest.raises(ModelFileError):
                load(path)


@pytest.mark.parametrize("model", [small_model(settings=SETTINGS), number_model()])
def test_forged_entries_raise_model_file_error_or_load_a_valid_model(model, tmp_path):
    path = tmp_path / "m"
    save(model, path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive_:
        names = archive_.namelist()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(90):
        path.write_bytes(whole)
        name = str(rng.choice(names))
        content = bytearray(entry(path, name))
        # Past the header of an array as often as in it.
        first = 128 if name.endswith(".npy") and rng.random() < 0.7 and len(content) > 128 else 0
        for at in rng.integers(first, len(content), size=int(rng.integers(1, 3))):
            content[at] = int(rng.integers(256))
        rewritten(path, {name: bytes(content)})
        refused += not check_harmless(path)
    assert refused > 30


# Memory and speed


def with_settings(text: str, path: Path) -> Path:
    """A model file of these settings, as JSON."""
    save(small_model(), path)
    header = json.loads(entry(path, "model.json")) | {"settings": {}}
    start, end = json.dumps(header).split('"settings": {}')
    return rewritten(path, {"model.json": f'{start}"settings": {text}{end}'.encode()})


@pytest.mark.parametrize(
    "one", ["[]", "{}", '{"":0}', '{"":[]}', "1e5", "[[[[]]]]", '"é"', "null"], ids=repr
)
def test_loading_settings_uses_bounded_memory(one, tmp_path):
    path = with_settings('{"": [' + ",".join([one] * 5_000) + "]}", tmp_path / "m")
    assert memory_of_loading(path) < 100 * path.stat().st_size


@pytest.mark.parametrize("n_trees", [1, 500])
def test_memory_is_bounded_by_the_size_of_the_file_and_the_number_of_trees(n_trees, tmp_path):
    many = tuple(f"{k:x}" for k in range(30_000 if n_trees == 1 else 2))
    schema = Schema(columns=(Column("x", "nominal", many),), classes=("a", "b"))
    path = tmp_path / "m"
    root = subset(0, many[:1], leaf([1, 2]), leaf([2, 1])) if n_trees == 1 else leaf([1, 2])
    save(make_model(schema, [build_tree(root, schema)] * n_trees), path)
    assert memory_of_loading(path) < 100 * path.stat().st_size + 4096 * n_trees


def memory_of_loading(path: Path) -> int:
    """Bytes at the peak, after everything is imported that a file needs."""
    load(path)
    tracemalloc.start()
    try:
        load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large_model(n_trees: int, depth: int) -> Model:
    """Full trees of random thresholds, nodes in breadth order."""
    rng = np.random.default_rng(0)
    schema = Schema(columns=tuple(Column(f"x{i}") for i in range(28)), classes=(0, 1))
    n, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    node = np.arange(n)
    is_leaf = node >= inner
    trees = [
        Tree(
            kind=np.where(is_leaf, Split.LEAF, Split.THRESHOLD),
            feature=np.where(is_leaf, -1, rng.integers(0, 28, n)),
            threshold=np.where(is_leaf, np.nan, rng.normal(size=n).astype(np.float32)),
            first_child=np.where(is_leaf, -1, 2 * node + 1),
            n_children=np.where(is_leaf, 0, 2),
            missing=np.zeros(n),
            level_offsets=np.zeros(n + 1),
            level_branch=np.zeros(0),
            value=rng.integers(1, 50, (n, 2)),
            weight=np.ones(n),
            gain=rng.random(n),
        )
        for _ in range(n_trees)
    ]
    return make_model(schema, trees)


@pytest.mark.matrix
def test_a_million_nodes_are_saved_and_loaded_in_under_a_second_each(tmp_path):
    model = large_model(n_trees=61, depth=13)
    assert model.n_nodes > 990_000
    path = tmp_path / "large.treekit"
    # Processor time: a shared disk or machine must not fail the test.
    started = time.process_time()
    save(model, path)
    saved = time.process_time()
    back = load(path)
    assert saved - started < 1
    assert time.process_time() - saved < 1
    assert path.stat().st_size < 40e6
    np.testing.assert_array_equal(back.units, model.units)
    np.testing.assert_array_equal(back.trees[-1].threshold, model.trees[-1].threshold)


def test_malicious_chain_of_many_nodes_is_refused_quickly(tmp_path):
    path = tmp_path / "m"
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    save(
        make_model(schema, [build_tree(threshold(0, 0, leaf([1, 0]), leaf([0, 1])), schema)]), path
    )
    n = 10**5 + 1
    node = np.arange(n)
    is_inner = (node % 2 == 0) & (node < n - 1)
    whole = np.where(is_inner, 1, 0)
    arrays = {
        "roots": np.array([0, n]),
        "kind": whole,
        "feature": whole - 1,
        "threshold": np.where(is_inner, 0.0, np.nan),
        "first_child": np.where(is_inner, node + 1, -1),
        "n_children": 2 * whole,
        "missing": 0 * whole,
        "value": np.ones((n, 2)),
        "weight": np.ones(n),
        "gain": np.zeros(n),
    }
    rewritten(path, {f"{name}.npy": encode_array(narrow_dtype(a)) for name, a in arrays.items()})
    started = time.process_time()
    with pytest.raises(ModelFileError, match="deeper than 5000"):
        load(path)
    assert time.process_time() - started < 2


# Oblique splits, surrogates, costs, votes, several outputs

WIDE = Schema(
    columns=(Column("a"), Column("c", "nominal", ("x", "y")), Column("b")), classes=("no", "yes")
)


def wide_model(**policies) -> Model:
    instead = [Surrogate("b", 1.5, below=1), Surrogate("c", levels={"x": 0})]
    inner = threshold("a", 2.5, leaf([3, 0]), leaf([0, 2]), surrogates=instead)
    tree = build_tree(oblique({"b": -2.0, "a": 1.5}, 0.1, inner, leaf([1, 1])), WIDE)
    plain = build_tree(threshold("b", 0.0, leaf([1, 3]), leaf([2, 1])), WIDE)
    return make_model(WIDE, [plain, tree, plain], missing="surrogate", **policies)


@pytest.mark.parametrize(
    "policies", [{}, {"voting": "hard"}, {"costs": [[0, 5], [1, 0]]}, {"unknown": "error"}]
)
def test_oblique_terms_surrogates_and_policies_are_saved(policies, tmp_path):
    model = wide_model(**policies)
    save(model, tmp_path / "m")
    back = load(tmp_path / "m")
    assert_same_model(model, back)
    assert (back.voting, back.unit_total) == (model.voting, model.unit_total)
    assert (back.costs is None) == (model.costs is None)
    if model.costs is not None:
        np.testing.assert_array_equal(back.costs, model.costs)


def test_an_array_of_another_number_of_dimensions_is_refused(tmp_path):
    path = tmp_path / "m"
    save(wide_model(), path)
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist() if name.endswith(".npy")}
    assert {"surrogate_feature.npy", "term_weight.npy"} <= set(entries)
    for name, content in entries.items():
        found = np.load(io.BytesIO(content))
        for other in (found[np.newaxis], found[..., np.newaxis], np.zeros((), found.dtype)):
            changed = io.BytesIO()
            np.save(changed, np.array(other, order="C"))
            save(wide_model(), path)
            rewritten(path, {name: changed.getvalue()})
            with pytest.raises(ModelFileError, match=f"{name[:-4]}.*(has shape|no array)"):
                load(path)


def test_invalid_costs_in_a_model_file_are_refused(tmp_path):
    model = wide_model(costs=[[0, 5], [1, 0]])
    save(model, tmp_path / "m")
    header = json.loads(entry(tmp_path / "m", "model.json"))
    for costs in (
        [[0, 5], [1]],
        [[0, 5]],
        [[1, 5], [1, 0]],
        [[0, -1], [1, 0]],
        [[0, 99999], [1, 0]],
    ):
        rewritten(tmp_path / "m", {"model.json": json.dumps(header | {"costs": costs}).encode()})
        with pytest.raises(ModelFileError, match="cost"):
            load(tmp_path / "m")


def test_model_of_several_outputs_is_saved(tmp_path):
    schema = Schema(
        columns=(Column("a"),), target="first", classes=("no", "yes"),
        more=(Output("second", (1, 2, 3)),),
    )  # fmt: skip
    tree = build_tree(threshold("a", 0.5, leaf([1, 2, 3, 0, 0]), leaf([2, 1, 0, 1, 2])), schema)
    model = make_model(schema, [tree], missing="fractional")
    save(model, tmp_path / "m")
    back = load(tmp_path / "m")
    assert back.schema.blocks == (0, 2, 5)
    np.testing.assert_array_equal(back.units, model.units)
    assert back.units[:, :2].sum(axis=1).tolist() == [2**24] * 2
    assert back.units[:, 2:].sum(axis=1).tolist() == [2**24] * 2


def test_older_files_with_fractional_instances_keep_their_predictions(tmp_path):
    model = EXTREMES["fractional_numbers"]()
    save(model, tmp_path / "m")
    header = json.loads(entry(tmp_path / "m", "model.json"))
    assert header["version"] == 5
    units = np.arange(-7, len(model.units) - 7)[:, None] * 12345679 // 2

    def write(own):
        changes = json.dumps(header | {"version": 2, "exponent": -20}).encode()
        return rewritten(tmp_path / "m", {"model.json": changes, "units.npy": encode_array(own)})

    old = load(write(units))
    rows = extreme_rows(model, most=16)
    answers = predict_from_sums(old, sum_leaf_values(old, rows)).tolist()
    for row, found in zip(rows.tolist(), answers, strict=True):
        # Before, values times masses were added, and divided by all masses.
        total = sum(mass * int(units[at, 0]) for at, mass in evaluate.leaf_masses(old, row).items())
        assert found == math.ldexp(total / (2 * MASS), -20)
    save(old, tmp_path / "again")
    assert hash_model(load(tmp_path / "again")) == hash_model(old)
    units[0] = 2**29 + 1
    with pytest.raises(ModelFileError, match="exceeds the maximum 536870912"):
        load(write(units))


# ---------------------------------------------------------------- models without plugins
# A model outlives the plugins that made it; only training again needs them.

PLUGIN = """
from treekit import (
    Criterion, CriterionFunctions, Pruner, PrunerFunctions, Setting, Splitter, SplitterFunctions,
    hookimpl,
)
from treekit.splitting import branch_stats, code_range, heavy_enough, missing_to, scored
from treekit.splitting import threshold_split

treekit_contract = 2

def make(power):
    def impurity(stats):
        total = stats.sum()
        return 1.0 - ((stats / total) ** power).sum()
    return CriterionFunctions(impurity=impurity)

def find(node, criterion, rng):
    low, high, _ = code_range(node, 0)
    split = missing_to(threshold_split(0, (low + high) // 2), 0)
    if low < high:
        children = branch_stats(node, split)
        if heavy_enough(node, children):
            return scored(split, criterion.score(node.stats, children))
    return None

def after(tree, context):
    context.report["nodes"] = tree.n_nodes
    return tree

@hookimpl
def treekit_criteria():
    power = Setting("power", 2.0, "of the shares", minimum=1.0)
    return [Criterion("powered", "classification", make, (power,))]

@hookimpl
def treekit_splitters():
    return [Splitter("middle", lambda: SplitterFunctions(find))]

@hookimpl
def treekit_pruners():
    return [Pruner("counted", lambda: PrunerFunctions(after=after))]
"""

CHILD = """
import sys
import numpy as np
import treekit
from click.testing import CliRunner
from treekit import registry
from treekit.cli import main

assert "powered" not in registry.list("criterion")
model = treekit.load("m.treekit")
rows = {"x": np.load("x.npy"), "z": np.load("z.npy")}
assert (model.predict(rows) == np.load("said.npy", allow_pickle=False)).all()
print(str(model.rules())[:30].strip() != "")
for target, suffix in (("onnx", "onnx"), ("c", "c"), ("python", "py"), ("rules", "rules.txt")):
    treekit.export(model, target, f"out/m.{suffix}")
report = treekit.verify(
    model, [f"out/m.{suffix}" for suffix in ("onnx", "c", "py", "rules.txt")], random_rows=50
)
print(report.equal)
table = rows | {"y": model.predict(rows)}
gains, losses = treekit.gain_importances(model), treekit.permutation_importances(model, table)
print(len(gains), len(losses.columns))
told = CliRunner().invoke(main, ["inspect", "m.treekit"])
print(" ".join(told.output.split()))
for kind in ("criterion", "splitter", "pruner"):
    others = {"criterion": "gini", "splitter": "exact", "pruner": "none"}
    del others[kind]
    try:
        treekit.train(table, "y", like="m.treekit", **others)
    except treekit.PluginError as error:
        print(error)
others = {"criterion": "gini", "splitter": "exact", "pruner": "none"}
print(treekit.train(table, "y", like=model, **others).n_nodes)
"""
RNG = np.random.default_rng(3)
DATA = {"x": RNG.random(60), "z": RNG.random(60)}
DATA["y"] = np.where(DATA["x"] + RNG.normal(0, 0.2, 60) > 0.5, "p", "q")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "their_plugin-3.1.dist-info"
    info.mkdir(parents=True)
    (site / "their_module.py").write_text(PLUGIN, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[treekit]\nplug = their_module\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield patch
    sys.modules.pop("their_module", None)


@pytest.mark.usefixtures("fresh_registry")
@pytest.mark.system
def test_model_is_loaded_and_used_without_its_plugins(installed, tmp_path):
    model = treekit.train(
        DATA,
        "y",
        criterion="powered",
        splitter="middle",
        pruner="counted",
        seed=0,
        **{"criterion.power": 3.0},
    )
    again = treekit.train(DATA, "y", like=model)
    np.testing.assert_array_equal(again.trees[0].value, model.trees[0].value)
    assert again.settings == model.settings
    model.save(tmp_path / "m.treekit")
    np.save(tmp_path / "x.npy", DATA["x"])
    np.save(tmp_path / "z.npy", DATA["z"])
    np.save(tmp_path / "said.npy", model.predict(DATA).astype("U"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shown, equal, importances, inspected, *refused, nodes = done.stdout.splitlines()
    assert shown == "True"
    assert equal == "True"
    assert importances.split() == ["2", "2"]
    for kind, name in (("criterion", "powered"), ("splitter", "middle"), ("pruner", "counted")):
        assert f"{kind} {name} (their-plugin 3.1)" in inspected
        assert any(
            f"{kind} {name!r} of the plugin 'plug' (their-plugin 3.1), which is not installed" in r
            and "pip install 'their-plugin==3.1'" in r
            for r in refused
        )
    assert len(refused) == 3
    assert int(nodes) > 1


@pytest.mark.usefixtures("fresh_registry")
@pytest.mark.matrix
def test_estimator_predicts_without_its_plugin_but_warm_start_is_refused(installed):
    table = np.column_stack([DATA["x"], DATA["z"]])
    forest = RandomForestClassifier(
        n_estimators=2, criterion="powered", warm_start=True, random_state=0
    ).fit(table, DATA["y"])
    tree = DecisionTreeClassifier(criterion="powered").fit(table, DATA["y"])
    before = forest.predict(table)
    installed.undo()
    registry.configure()
    assert (forest.predict(table) == before).all()
    assert tree.feature_importances_.shape == (2,)
    forest.set_params(n_estimators=3)
    with pytest.raises(
        treekit.PluginError, match=r"'powered' of the plugin 'plug' .their-plugin 3"
    ):
        forest.fit(table, DATA["y"])


@pytest.mark.usefixtures("fresh_registry")
def test_criterion_object_named_like_a_built_in_must_be_passed_again():
    own = replace(registry.get("criterion", "gini"), summary="somebody's own")
    model = treekit.train(DATA, "y", criterion=own, max_depth=2)
    with pytest.raises(SettingError, match=r"criterion 'gini', which was passed as an object"):
        treekit.train(DATA, "y", like=model)
    assert treekit.train(DATA, "y", like=model, criterion=own).n_nodes == model.n_nodes
