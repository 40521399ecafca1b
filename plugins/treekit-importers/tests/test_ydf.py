"""Models read from YDF's folders: their paths and predictions equal YDF's.

The folders in ``ydf`` were made by YDF itself, see `make_ydf.py`.
"""

from __future__ import annotations

import json
import runpy
import shutil
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treekit_importers.ydf import read_ydf, recognises_ydf

import treekit
from tests.fuzz.damage import broken_bytes
from tests.fuzz.harness import Subject, cases, fuzz
from tests.interop.test_interop import is_sound
from tests.runtimes import need
from treekit.errors import DataError, ModelError, ModelFileError, TreekitError
from treekit.model.tree import Split
from treekit.testing import check_importer

FOLDER = Path(__file__).with_name("ydf")
CASES = sorted(path.stem for path in FOLDER.glob("*.answers"))
BOOSTED = ("binary", "three", "sums", "poisson")
FILES = ("header.pb", "data_spec.pb", "nodes-00000-of-00001")


@cache
def answers(case: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((FOLDER / f"{case}.answers").read_text())
    return told


def bound_sums(model: treekit.Model) -> float:
    """The bound of the module: of YDF's sum of leaves in float32."""
    largest = sum(np.abs(tree.value[tree.leaves]).max() for tree in model.trees)
    return float((model.n_trees + 1) * 2.0**-24 * largest) / model.divisor


def assert_equal_predictions(
    model: treekit.Model, rows: Any, predictions: Any, labels: Any
) -> None:
    theirs = np.asarray(predictions, dtype=np.float64)
    if model.schema.task == "regression":
        ours = np.asarray(model.predict(rows))
        bound = bound_sums(model)
        if model.link == "exp":
            bound = 4 * bound * theirs.max()
        assert np.abs(ours - theirs).max() <= bound
        return
    if theirs.ndim == 1:
        theirs = np.stack([1 - theirs, theirs], axis=1)
    shares = model.predict_proba(rows)
    votes = (model.n_trees + 1) * 2.0**-24
    assert np.abs(shares - theirs).max() <= (bound_sums(model) if model.margins else votes) + 1e-7
    other = np.asarray(model.predict(rows)) != np.asarray(labels)
    assert np.all(shares[other, 0] == 0.5)  # a tie of two classes
    assert not model.margins or not other.any()


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_within_the_bounds(case: str) -> None:
    told, model = answers(case), treekit.read_model(FOLDER / case)
    labels = told.get("labels")
    assert_equal_predictions(model, told["rows"], told["predictions"], labels)


def test_tie_of_two_classes_predicts_the_first() -> None:
    told, model = answers("pairs"), treekit.read_model(FOLDER / "pairs")
    tied = model.predict_proba(told["rows"])[:, 0] == 0.5
    assert tied.any()
    assert set(np.asarray(model.predict(told["rows"]))[tied]) == {model.schema.classes[0]}
    assert set(np.asarray(told["labels"])[tied]) == {model.schema.classes[1]}


def test_winner_take_all_probabilities_are_shares_of_trees() -> None:
    model = treekit.read_model(FOLDER / "winners")
    shares = model.predict_proba(answers("winners")["rows"])
    np.testing.assert_array_equal(shares * 4, np.round(shares * 4))


def test_columns_and_classes_keep_their_names() -> None:
    model = treekit.read_model(FOLDER / "pairs")
    assert sorted(column.name for column in model.schema.columns) == [
        *("height", "rooms", "soil", "wide", "width", "zone")
    ]
    levels = {column.name: set(column.levels) for column in model.schema.columns}
    assert levels["soil"] == {"*/", "clay", "loam", "sand", "silt"}
    assert levels["zone"] == {"3", "5", "9", "11"}
    assert set(model.schema.classes) == {"no", "yes"}
    assert model.schema.target == "y"
    kinds = np.concatenate([tree.kind for tree in model.trees])
    assert np.any(kinds == Split.SUBSET)


def test_margins_and_numbers_of_iterations_are_selected_or_refused() -> None:
    model = treekit.read_model(FOLDER / "three", answer="margins", iterations=2)
    assert model.n_trees == 2 * 3
    assert model.schema.task == "regression"
    assert treekit.read_model(FOLDER / "winners", iterations=3).n_trees == 3
    with pytest.raises(ModelError, match="has 4 iterations, not 5; request fewer"):
        treekit.read_model(FOLDER / "three", iterations=5)
    with pytest.raises(ModelError, match="is a forest, which has no margins"):
        treekit.read_model(FOLDER / "winners", answer="margins")


def test_oblique_splits_are_refused() -> None:
    with pytest.raises(ModelError, match=r"sums of columns \(sparse oblique\) on column"):
        treekit.read_model(FOLDER / "oblique")


# ---------------------------------------------------------------- written files


def varint(value: int) -> bytes:
    value %= 2**64
    written = b""
    while value > 127:
        written += bytes([value & 127 | 128])
        value >>= 7
    return written + bytes([value])


def field(number: int, value: int | float | bytes) -> bytes:
    """A field of a message: an integer, a float32, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def inner(attribute: int, missing: bool, condition: bytes) -> bytes:
    return field(3, field(1, int(missing)) + field(2, attribute) + field(3, condition))


def number(value: float) -> bytes:
    return field(2, field(1, value))


HIGHER, CONTAINS, BITMAP = 2, 4, 5
HEIGHT, SOIL, WIDE = "height", "soil", "wide"


def write_nodes(folder: Path, nodes: Sequence[bytes], *, start: bytes = b"BS\1\0\0\0\0\0") -> Path:
    blobs = (struct.pack("<I", len(node)) + node for node in nodes)
    (folder / FILES[2]).write_bytes(start + b"".join(blobs))
    return folder


def copy(case: str, folder: Path) -> Path:
    return Path(shutil.copytree(FOLDER / case, folder / case))


def index_of(name: str, case: str = "sums") -> int:
    """The index of a column in the data specification of `case`."""
    header = (FOLDER / case / "data_spec.pb").read_bytes()
    names = [b"height", b"width", b"rooms", b"soil", b"zone", b"wide", b"y"]
    order = sorted(names, key=lambda one: header.index(b"\x12" + bytes([len(one)]) + one))
    return order.index(name.encode())


def one_tree(nodes: Sequence[bytes], folder: Path) -> treekit.Model:
    """A boosted tree of some nodes, with an initial prediction of 0."""
    path = write_nodes(copy("sums", folder), nodes)
    header = path / "gradient_boosted_trees_header.pb"
    kept = field(1, 1) + field(2, 1) + field(3, 2) + field(4, 0.0) + field(7, b"BLOB_SEQUENCE")
    header.write_bytes(kept)
    return treekit.read_model(path)


def row(**cells: Any) -> dict[str, list[Any]]:
    plain = {"height": 0.0, "width": 0.0, "rooms": 0.0, "soil": "clay", "zone": "3", "wide": False}
    return {name: [cell] for name, cell in (plain | cells).items()}


@pytest.mark.parametrize("missing", [False, True])
def test_missing_numbers_take_the_stored_branch(missing: bool, tmp_path: Path) -> None:
    split = inner(index_of(HEIGHT), missing, field(HIGHER, field(1, 1.5)))
    model = one_tree([split, number(-1.0), number(2.0)], tmp_path)
    at = np.float32(1.5)
    for cell, met in ((at, True), (np.nextafter(at, np.float32(0)), False), (None, missing)):
        assert model.predict(row(height=cell)).tolist() == [2.0 if met else -1.0]


@pytest.mark.parametrize("kind", [CONTAINS, BITMAP])
@pytest.mark.parametrize(("codes", "missing"), [((1,), True), ((0, 1), False), ((0,), False)])
def test_unseen_categories_are_refused_unless_they_count_as_missing(
    kind: int, codes: tuple[int, ...], missing: bool, tmp_path: Path
) -> None:
    packed = (
        b"".join(map(varint, codes)) if kind == CONTAINS else bytes([sum(1 << c for c in codes)])
    )
    split = inner(index_of(SOIL), missing, field(kind, field(1, packed)))
    model = one_tree([split, number(-1.0), number(2.0)], tmp_path)
    assert model.unknown == "error"
    first = next(column for column in model.schema.columns if column.name == SOIL).levels[0]
    assert model.predict(row(soil=first)).tolist() == [2.0 if 1 in codes else -1.0]
    assert model.predict(row(soil=None)).tolist() == [2.0 if missing else -1.0]
    with pytest.raises(DataError, match="'peat'"):
        model.predict(row(soil="peat"))


def test_unseen_categories_count_as_missing_if_both_take_one_branch(tmp_path: Path) -> None:
    split = inner(index_of(SOIL), True, field(CONTAINS, field(1, varint(0) + varint(2))))
    model = one_tree([split, number(-1.0), number(2.0)], tmp_path)
    assert model.unknown == "missing"
    assert model.predict(row(soil="peat")).tolist() == [2.0]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "fewer nodes than its trees"),
        ([inner(2, False, field(HIGHER, b"")), number(1.0)], "fewer nodes than its trees"),
        ([inner(0, False, field(HIGHER, b""))], "the unknown column 0"),
        ([field(9, 1)], r"unknown field 9 of Node, .*update treekit"),
        ([inner(99, False, field(HIGHER, b""))], "the unknown column 99"),
        ([inner(2, False, b"")], "0 conditions"),
        ([inner(2, False, field(HIGHER, b"") + field(CONTAINS, b""))], "2 conditions"),
        ([inner(2, False, field(1, b""))], "tests for missing values on column"),
        ([inner(2, False, field(8, b""))], "sequences of vectors on column"),
        ([inner(2, False, field(6, b""))], "conditions of kind 6 on column"),
        ([field(1, field(1, 1))], "a leaf has no number"),
        ([number(float("inf"))], "a leaf's value is not finite"),
        ([b"\x0a\xff"], "Node is truncated"),
        ([b"\x0a" + b"\xff" * 12], "Node is truncated"),
        ([b"\x0b"], "Node is truncated"),
        ([field(2, 7)], "field 2 of Node"),
    ],
)
def test_unsupported_nodes_are_refused(nodes: list[bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(TreekitError, match=message):
        one_tree(nodes, tmp_path)


def test_tree_beyond_the_depth_limit_is_refused(tmp_path: Path) -> None:
    split = inner(index_of(HEIGHT), False, field(HIGHER, field(1, 1.0)))
    with pytest.raises(ModelError, match="deeper than 5000"):
        one_tree([split] * 6000, tmp_path)


def test_categories_out_of_range_are_refused(tmp_path: Path) -> None:
    split = inner(index_of(SOIL), False, field(CONTAINS, field(1, varint(6))))
    with pytest.raises(ModelFileError, match="unknown category of 'soil'"):
        one_tree([split, number(-1.0), number(2.0)], tmp_path)


CART, FOREST = "random_forest_header.pb", "random_forest_header.pb"
BOOSTED_HEADER = "gradient_boosted_trees_header.pb"


@pytest.mark.parametrize(
    ("case", "file", "more", "message"),
    [  # of fields given twice, the last one counts
        ("sums", "header.pb", field(1, b"ISOLATION_FOREST"), "kind 'ISOLATION_FOREST'"),
        ("sums", "header.pb", field(2, 5), "loss 2 for task 5 is unknown.*margins"),
        ("means", "header.pb", field(2, 5), "forest of task 5"),
        ("sums", "header.pb", field(3, 99), "a column of the header does not exist"),
        ("sums", "header.pb", field(5, 99), "a column of the header does not exist"),
        ("sums", "header.pb", field(5, 1) * 2, "a column is an input twice"),
        ("sums", "header.pb", field(8, 0), "without probabilities"),
        ("sums", "header.pb", field(99, 0), "unknown field 99 of AbstractModel"),
        ("sums", "data_spec.pb", field(9, 0), "unknown field 9 of DataSpecification"),
        ("sums", "data_spec.pb", field(1, field(99, 0)), "unknown field 99 of Column"),
        ("sums", "data_spec.pb", field(1, field(2, b"\xff")), "not UTF-8"),
        ("sums", BOOSTED_HEADER, field(3, 10), "loss 10 for task 2 is unknown.*margins"),
        ("sums", BOOSTED_HEADER, field(9, 1), "output_logits"),
        ("sums", BOOSTED_HEADER, field(2, 2**62), "too large: it has 4611686018427387904 trees"),
        ("sums", BOOSTED_HEADER, field(2, -1), "it has -1 trees"),
        ("sums", BOOSTED_HEADER, field(2, 99), "fewer nodes than its trees"),
        ("sums", BOOSTED_HEADER, field(4, 1.0), "2 initial predictions, 1 trees a round"),
        ("sums", BOOSTED_HEADER, field(5, 3), "3 a round"),
        ("sums", BOOSTED_HEADER, field(5, 0), "0 a round"),
        ("sums", BOOSTED_HEADER, field(7, b"TFE_RECORDIO"), "as 'TFE_RECORDIO'"),
        ("sums", BOOSTED_HEADER, field(1, 0), "its nodes are in 0 files"),
        ("sums", BOOSTED_HEADER, field(1, 2), "nodes-00000-of-00002"),
        ("winners", FOREST, field(3, 0) + field(99, 1), "unknown field 99 of random_forest"),
    ],
)
def test_unsupported_headers_are_refused(
    case: str, file: str, more: bytes, message: str, tmp_path: Path
) -> None:
    path = copy(case, tmp_path)
    (path / file).write_bytes((path / file).read_bytes() + more)
    with pytest.raises(TreekitError, match=message):
        treekit.read_model(path)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"BS\1\0\1\0\0\0", "is compressed"),
        (b"BS\2\0\0\0\0\0", "not a sequence of nodes"),
        (b"XX\1\0\0\0\0\0", "not a sequence of nodes"),
        (b"BS", "not a sequence of nodes"),
    ],
)
def test_unsupported_node_files_are_refused(start: bytes, message: str, tmp_path: Path) -> None:
    path = write_nodes(copy("sums", tmp_path), [], start=start)
    with pytest.raises(TreekitError, match=message):
        treekit.read_model(path)


def categories(*items: tuple[bytes, int], size: int) -> bytes:
    entries = (field(7, field(1, text) + field(2, field(1, code))) for text, code in items)
    spec = field(2, size) + b"".join(entries)
    return field(1, field(1, 4) + field(2, b"more") + field(6, spec))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (categories((b"a", 1), (b"b", 1), size=2), "two categories of 'more' are 1"),
        (categories((b"a", 1), (b"b", 3), size=4), "'more' are incomplete"),
        (categories((b"a", 1), size=9), "'more' are incomplete"),
        (categories((b"a", 1), (b"a", 2), size=3), "equal text"),
        (field(1, field(1, 4) + field(6, field(5, 1))), "without a dictionary"),
    ],
)
def test_unsupported_category_definitions_are_refused(
    column: bytes, message: str, tmp_path: Path
) -> None:
    path = copy("sums", tmp_path)
    (path / "data_spec.pb").write_bytes((path / "data_spec.pb").read_bytes() + column)
    with pytest.raises(TreekitError, match=message):
        treekit.read_model(path)


def test_only_folders_of_models_are_recognised(tmp_path: Path) -> None:
    assert recognises_ydf(FOLDER / "three")
    assert not recognises_ydf(FOLDER)
    assert not recognises_ydf(FOLDER / "three.answers")
    assert not recognises_ydf(tmp_path / "a\0b")
    with pytest.raises(ModelError, match="no importer recognises"):
        treekit.read_model(tmp_path)


def test_importer_passes_the_contract_checks() -> None:
    check_importer("ydf", sources=[FOLDER / "three", FOLDER / "means"])


@cases(60, 2000)
def test_broken_folder_is_refused_or_read_as_a_valid_model(tmp_path, count):
    """One file of a folder is broken: the case is its case and file, a line, and its bytes."""
    parts = [
        (case, path.name)
        for case in ("three", "means", "shares")
        for path in sorted((FOLDER / case).iterdir())
        if path.stat().st_size
    ]
    seeds = [f"{c} {f}\n".encode() + (FOLDER / c / f).read_bytes() for c, f in parts]

    def damage(some: Sequence[bytes], rng: np.random.Generator) -> bytes:
        line, _, content = some[int(rng.integers(len(some)))].partition(b"\n")
        return line + b"\n" + broken_bytes([content], rng)

    def read(path: Path) -> treekit.Model:
        line, _, content = path.read_bytes().partition(b"\n")
        case, file = line.decode().split()
        folder = path.parent / case
        if not folder.exists():
            copy(case, path.parent)
        sound = (FOLDER / case / file).read_bytes()
        (folder / file).write_bytes(content)
        try:
            return read_ydf(folder)
        finally:
            (folder / file).write_bytes(sound)

    broken = Subject("broken_ydf", seeds, read, is_sound, damage, watched=False)
    refused, sound = fuzz(broken, tmp_path, count)
    assert refused
    assert sound


# ---------------------------------------------------------------- the library itself


@pytest.mark.parametrize("case", ["winners", "three"])
def test_model_of_the_installed_ydf_predicts_equally(case: str) -> None:
    need("ydf")
    made = runpy.run_path(str(Path(__file__).with_name("make_ydf.py")))
    model, rows = made["fit"](case)
    read = treekit.read_model(model)
    labels = model.predict_class(rows)
    assert_equal_predictions(read, made["list_cells"](rows), model.predict(rows), labels)
