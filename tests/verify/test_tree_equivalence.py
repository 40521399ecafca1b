"""Comparison on every path: it holds for what exporters make, and for nothing else."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.extremes import EXTREMES
from tests.reference.artifacts import export_python
from tests.reference.models import chain, random_model
from tests.reference.mutants import onnx_mutants
from tests.reference.python_arrays import array_in, with_arrays
from tests.reference.read_c_tables import compare_table_structure
from tests.reference.read_python_tables import (
    compare_python_structure as read_python_structure,
)
from tests.tiers import by_size
from treekit.data.schema import Column, Schema
from treekit.export import export
from treekit.export.c import export_c
from treekit.export.literals import list_shipped_folders
from treekit.model.builder import build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import make_model
from treekit.model.scoring import sum_leaf_values
from treekit.verify import verify
from treekit.verify.answers import differing, expected
from treekit.verify.run_artifact import find_runner
from treekit.verify.run_c import compare_c_structure
from treekit.verify.run_language import compare_python_structure
from treekit.verify.run_onnx import compare_onnx_structure
from treekit.verify.tree_equivalence import compare_paths, make_lowered_tables

ONE_WAY = [name for name in EXTREMES if not name.startswith(("fractional", "five_thousand"))]
READ = [
    (name, form)
    for name, form in itertools.product(EXTREMES, ("if_else", "table"))
    if form == "table" or not name.startswith(("fractional", "five_thousand", "deep_left"))
]


@pytest.mark.parametrize("name", by_size(ONE_WAY))
def test_lowering_keeps_every_path_of_every_extreme_model(name):
    model = EXTREMES[name]()
    structure = compare_paths(model, make_lowered_tables(model))
    assert structure.proved, structure.summary
    assert structure.summary.startswith("proved: every path of ")


@pytest.mark.parametrize(("name", "form"), by_size(READ))
def test_trees_are_read_back_from_python_and_proved(tmp_path, name, form):
    model = EXTREMES[name]()
    (source,) = export_python(model, "m", form=form).values()
    (tmp_path / "m.py").write_bytes(source)
    assert compare_python_structure(tmp_path / "m.py", model).proved
    structure = read_python_structure(tmp_path / "m.py", model)
    if (name, form) == ("oblique", "if_else"):
        assert structure.summary.startswith("not proved: its tables cannot be read (neither cell")
    else:
        assert structure.proved, structure.summary


def c_of(folder, model, **settings):
    """The source of a model, called m, beside its header."""
    for name, content in export_c(model, "m", **settings).items():
        (folder / name).write_bytes(content)
    return folder / "m.c"


def tables_proved(text, model):
    """What a source's tables alone say, whatever is written around them."""
    return compare_table_structure(text.encode(), "m", model).proved


PACKED = [
    *((name, "table") for name in EXTREMES),
    *((name, "hybrid") for name in ONE_WAY if name not in ("deep_left", "thousand_classes")),
]


@pytest.mark.parametrize(("name", "form"), by_size(PACKED))
def test_packed_tables_of_c_are_read_back_and_proved(tmp_path, name, form):
    model = EXTREMES[name]()
    path = c_of(tmp_path, model, form=form)
    assert compare_c_structure(path, model).proved
    structure = compare_table_structure(path.read_bytes(), "m", model)
    if name in ("oblique", "surrogates") or model.missing == "fractional":
        assert structure.summary.startswith(
            "not proved: its tables cannot be read (unsupported C source"
        )
    else:
        assert structure.proved, structure.summary


GRAPHS = ("one_leaf", "wide_numbers", "mixed64", "oblique", "surrogates", "several_labels")


@pytest.mark.parametrize("name", by_size(GRAPHS))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"inputs": "columns"},
        {"leaf": True, "decision_path": True, "opset": 18},
        {"target_runtime": "1.20"},
    ],
)
def test_graphs_equal_a_fresh_export_with_the_settings_found_in_them(tmp_path, name, settings):
    model = EXTREMES[name]()
    (path,) = export(model, "onnx", tmp_path / "m", **settings)
    structure = compare_onnx_structure(path, model)
    assert structure.proved, structure.summary


def test_a_graph_changed_in_any_way_is_not_proved(tmp_path):
    model = EXTREMES["costs"]()
    (path,) = export(model, "onnx", tmp_path / "m", zipmap=True)
    assert compare_onnx_structure(path, model).proved
    content = path.read_bytes()
    for changed in (
        b"nothing",
        content[:-1],
        content.replace(b"onnxruntime 1.", b"onnxruntime x."),
    ):
        path.write_bytes(changed)
        assert not compare_onnx_structure(path, model).proved
    path.unlink()
    assert not compare_onnx_structure(path, model).proved


def test_every_fault_in_a_graph_that_rows_could_show_is_found(tmp_path):
    schema = Schema(COLUMNS, classes=("no", "yes"))
    model = random_model(3, schema, n_trees=1, n_splits=9)
    (path,) = export(model, "onnx", tmp_path / "m")
    runner, grid = find_runner(path), grid_of(model)
    wanted = expected(model, grid, 0)
    found = 0
    for _, content in itertools.islice(onnx_mutants(path.read_bytes()), 0, None, 3):
        path.write_bytes(content)
        answers = next(answers for _, answers in runner.run_rows(path, schema, grid))
        if len(differing(wanted, answers)):
            assert not compare_onnx_structure(path, model).proved
            found += 1
    assert found >= 10


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.matrix)])
def test_every_bit_of_a_packed_node_of_c_counts(dtype):
    model = chain(5, Schema((Column("x"),), classes=("no", "yes"), dtype=dtype))
    text = export_c(model, "m", form="table")["m.c"].decode()
    assert tables_proved(text, model)
    words = re.search(r"m_nodes\[\d+\] = \{\n([^}]*)\n\}", text)
    for word in re.finditer("0x([0-9a-f]{16})", words[1]):
        at = words.start(1) + word.start(1)
        for bit in range(64):
            changed = f"{text[:at]}{int(word[1], 16) ^ (1 << bit):016x}{text[at + 16 :]}"
            assert not tables_proved(changed, model), (word[0], bit)


CELLS = [{}, {"input": "float"}, {"arithmetic": "integer"}]


@pytest.mark.parametrize("cells", CELLS, ids=["double", "float", "integer"])
def test_every_word_of_the_nested_tests_of_c_counts(cells):
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    said = [leaf([n, 9 - n]) for n in range(5)]
    above = threshold(1, -3.5, said[0], threshold(0, 0.75, said[1], said[2]))
    tree = build_tree(
        threshold(0, 2.25, above, threshold(1, 1.125, said[3], said[4]), missing=0), schema
    )
    model = make_model(schema, [tree])
    text = export_c(model, "m", form="hybrid", **cells)["m.c"].decode()
    assert tables_proved(text, model)
    begin, end = text.index("_APART static"), text.index("static void m_sums(")
    words = re.compile(r"m_in_\w+|0x[0-9a-f]+u|-?\d+(\.\d+)?(e-?\d+)?f?(?=\)|;)|<=|>| \|\|.*MAX|!")
    changed = 0
    for word in words.finditer(text, begin, end):
        for other in other_words(word[0]):
            damaged = text[: word.start()] + other + text[word.end() :]
            assert not tables_proved(damaged, model), (word[0], other)
            changed += 1
    assert changed > 30
    for gone in re.findall(r"^M_APART.*?^\}\n", text, re.MULTILINE | re.DOTALL):
        assert not tables_proved(text.replace(gone, ""), model)


def other_words(word):
    """What a word of a test may not become."""
    if word.startswith("m_in_"):
        return ["m_in_y" if word == "m_in_x" else "m_in_x", "m_in_z"]
    if word.startswith("0x"):
        return [f"0x{int(word[2:-1], 16) + step:08x}u" for step in (1, -1)]
    if word[-1] == "f":
        return [f"{np.nextafter(np.float32(word[:-1]), np.float32(side))}f" for side in (9, -9)]
    if word.isdigit():
        return [str(int(word) + 1), "99999"]
    if word[-1].isdigit():
        return [repr(float(np.nextafter(float(word), side))) for side in (99, -99)]
    return {"<=": ["<", ">"], ">": [">=", "<="], "!": [""]}.get(word, [""])


# ------------------------------------------------------------------ faults of C

TOWNS = Schema(
    (Column("x"), Column("town", "nominal", ("a", "b", "c"))), classes=("no", "yes", "maybe")
)


def packed_trees():
    """A source of packed nodes with sets of levels, costs and the depths of its trees."""
    root = subset(1, ["a"], leaf([1, 2, 1]), leaf([3, 1, 9]), missing=0, absent=["c"])
    asks = is_missing(1, leaf([1, 7, 2]), leaf([5, 1, 1]))
    others = leaf([4, 4, 1]), asks, leaf([0, 4, 1]), leaf([0, 0, 1])
    for at, other in zip((-2.0, 1.5, 1e9, 2e9), others, strict=True):
        root = threshold(0, at, root, other, missing=int(at > 0))
    costs = np.array([[0, 1, 2], [3, 0, 1], [2, 2, 0]])
    model = make_model(TOWNS, [build_tree(root, TOWNS)] * 2, costs=costs)
    return model, {"form": "table"}


def packed_trees_of_many_branches():
    """A source whose levels lead to more than two branches, of nodes of two words."""
    schema = Schema(TOWNS.columns, classes=TOWNS.classes, dtype="float64")
    each = {name: leaf([n, 1, 2]) for n, name in enumerate("abc")}
    root = threshold(0, 1e-7, multiway(1, each, missing=1), leaf([5, 5, 1]))
    return make_model(schema, [build_tree(root, schema)]), {"form": "table"}


def nine_packed_trees():
    """A source of nine trees, eight of them walked by turns, whose sets of levels all differ."""
    trees = []
    for at, levels in enumerate(("a", "b", "c", "ab", "ac", "bc", "a", "b", "c")):
        left = subset(1, [*levels], leaf([1, 2, 1]), leaf([3, 1, 9]), missing=at // 6)
        right = is_missing(1, leaf([4, 4, 1]), leaf([1, 7, 2]))
        trees.append(build_tree(threshold(0, at, left, right, missing=at % 2), TOWNS))
    return make_model(TOWNS, trees), {"form": "table"}


def nested_trees():
    """A hybrid with rows in float."""
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    trees = []
    for at in (1.5, -7.25):
        below = threshold(1, 2.5, leaf([1, 9 + at]), leaf([3, 9 - at]), missing=0)
        trees.append(build_tree(threshold(0, at, below, leaf([0, 1])), schema))
    return make_model(schema, trees), {"form": "hybrid", "input": "float"}


SOURCES = [packed_trees, packed_trees_of_many_branches, nine_packed_trees, nested_trees]
_TABLE = re.compile(r"^static const u?int\d+_t m_(\w+)\[\d+\] = \{\n(.*?)\n\};$", re.M | re.S)
_NESTED = re.compile(r"(?<= \*x\)\n)\{\n    if.*?^}", re.M | re.S)


def one_letter_faults(text, begin, end):
    """A source with each letter between two places changed, doubled, or left out, in turn."""
    nested = text[begin] == "{"  # where blanks mean nothing
    for at in range(begin, end):
        one = text[at]
        if nested and one.isspace():
            continue
        instead = {" ": "0", "\n": "1", ",": "7", "-": "1"}.get(one, "0")
        if one.isdigit():
            instead = str((int(one) + 1) % 10)
        for new in (instead, one + one, "", "0" + one, one + ","):
            yield at, text[:at] + new + text[at + 1 :]


def unread_places(text, model):
    """Letters of numbers that no walk reads, or the proof by tables does not."""
    free = set()
    for table in _TABLE.finditer(text):
        # What `m_leaf` tells; depths of packed nodes may be more than they are.
        if table[1] == "end_nodes" or (table[1] == "depths" and "m_heap" not in text):
            free |= set(range(*table.span(2)))
        if table[1] == "heap":  # whose first place in each tree is none
            words = list(re.finditer("[0-9a-f]{16}", table[2]))
            for word in words[:: len(words) // model.n_trees]:
                free |= set(range(table.start(2) + word.start(), table.start(2) + word.end()))
    return free


@pytest.mark.parametrize("make", SOURCES)
def test_every_letter_of_the_tables_of_c_counts(make):
    model, settings = make()
    text = export_c(model, "m", **settings)["m.c"].decode()
    assert tables_proved(text, model)
    spans = [table.span(2) for table in _TABLE.finditer(text)]
    spans += [function.span() for function in _NESTED.finditer(text)]
    faults = [fault for span in spans for fault in one_letter_faults(text, *span)]
    assert len(faults) > 2000
    free = unread_places(text, model)
    for at, damaged in faults[::11]:
        assert at in free or not tables_proved(damaged, model), damaged[at - 20 : at + 20]


DECLARED = [
    (r"uint8_t( m_depths)", r"int8_t\1"),
    (r"int32_t( m_levels)", r"int16_t\1"),
    (r"(m_levels\[)2", r"\g<1>3"),
    (r"uint64_t( m_nodes)", r"uint32_t\1"),
    (r"(m_nominal\[1\] = \{\n)1", r"\g<1>0"),
    (r"(m_level_codes\[\] = \{\n)0, 1", r"\g<1>1, 0"),
    (r"(define M_WRAP.*)1u", r"\g<1>3u"),
    (r"(define M_LEVELS.*)>> 1", r"\g<1>>> 0"),
    (r"(define M_KEY\(at\) )", r"\g<1>1 + "),
    (r"(define M_SET\(i\) m_sets\[)i", r"\g<1>0"),
    (r"(level) < m_depths", r"\1 > m_depths"),
]


@pytest.mark.parametrize(("pattern", "instead"), DECLARED)
def test_neither_types_nor_code_around_tables_of_c_may_change(tmp_path, pattern, instead):
    model, settings = packed_trees()
    path = c_of(tmp_path, model, **settings)
    changed, times = re.subn(pattern, instead, path.read_text())
    assert times == 1
    path.write_text(changed)
    assert not compare_c_structure(path, model).proved


def test_a_source_by_templates_of_ones_own_is_left_to_rows(tmp_path):
    model, settings = packed_trees()
    own = tmp_path / "own" / "c"
    own.mkdir(parents=True)
    (shipped,) = list_shipped_folders()
    text = (shipped / "c" / "walk.jinja").read_text()
    text = text.replace('part == "walk/packed"', 'part == "other"').replace(
        'part == "walk/wide"', 'part == "walk/packed"'
    )
    (own / "walk.jinja").write_text(text)
    by_own = export_c(model, "m", templates=str(tmp_path / "own"), **settings)["m.c"]
    path = c_of(tmp_path, model, **settings)
    assert compare_c_structure(path, model).proved
    path.write_bytes(by_own)
    assert not compare_c_structure(path, model).proved


@pytest.mark.parametrize("make", [packed_trees, nested_trees])
def test_no_tree_of_c_is_deeper_than_batches_walk(make):
    model, settings = make()
    text = export_c(model, "m", **settings)["m.c"].decode()
    depth = re.compile(r"(?<=m_depths\[2\] = \{\n)(\d), (\d)")
    deep = [tree.depth for tree in model.trees]
    for first, second, enough in ((0, 0, True), (1, 0, True), (-1, 0, False), (0, -1, False)):
        changed = depth.sub(f"{deep[0] + first}, {deep[1] + second}", text)
        assert tables_proved(changed, model) == enough


@pytest.mark.parametrize("make", SOURCES)
def test_no_letter_of_the_files_of_c_may_change(tmp_path, make):
    model, settings = make()
    path = c_of(tmp_path, model, **settings)
    assert compare_c_structure(path, model).proved
    for file in (path, path.with_suffix(".h")):
        text = file.read_text()
        for at in range(7, len(text), len(text) // 12):
            file.write_text(text[:at] + ("9" if text[at] != "9" else "8") + text[at + 1 :])
            assert not compare_c_structure(path, model).proved, text[at - 7 : at + 7]
        file.write_bytes(text.replace("\n", "\r\n").encode())  # as git writes it on Windows
        assert compare_c_structure(path, model).proved
    path.with_suffix(".h").unlink()
    assert "differs from what this version" in compare_c_structure(path, model).summary


# ------------------------------------------------------------------ faults

COLUMNS = (Column("x"), Column("colour", "nominal", ("red", "green", "blue")), Column("y"))


def said_of(tables, row):
    """What the tables say to a row, in each tree, by the definition of their questions."""
    total = 0
    for root in tables.root.tolist():
        node = root
        while node >= 0:
            x, kind, value = row[tables.feature[node]], tables.kind[node], tables.value[node]
            codes = tables.set_codes[tables.set_start[node] : tables.set_start[node + 1]]
            yes = [x <= value, not x > value, x in codes, math.isnan(x)][kind]
            node = int((tables.yes if yes else tables.no)[node])
        total = total + tables.leaves[-1 - node]
    return total.tolist()


def grid_of(model):
    """Every cell that a threshold, or one moved a little, can tell apart."""
    axes = []
    for f, column in enumerate(COLUMNS):
        tree = model.trees[0]
        at = tree.threshold[(tree.kind == 1) & (tree.feature == f)]
        edges = to_double_threshold(at)
        both = {*edges.tolist(), *np.nextafter(edges, np.inf).tolist()}
        numbers = [math.nan, -1e300, *sorted(both), 1e300]
        axes.append(numbers if column.kind == "numeric" else [math.nan, 0.0, 1.0, 2.0])
    return np.array(list(itertools.product(*axes)))


def faults(tables):
    """Each entry of the tables changed, in turn."""
    for at in range(len(tables.value)):
        for name, new in (
            ("value", np.nextafter(tables.value[at], np.inf)),
            ("kind", {0: 1, 1: 0, 2: 2, 3: 0}[int(tables.kind[at])]),
            ("yes", tables.no[at]),
            ("no", -1),
        ):
            if not np.array_equal(getattr(tables, name)[at], new):
                changed = getattr(tables, name).copy()
                changed[at] = new
                yield replace(tables, **{name: changed})
    for at in range(len(tables.set_codes)):
        changed = tables.set_codes.copy()
        changed[at] = 3  # no level
        yield replace(tables, set_codes=changed)
    for at in range(len(tables.leaves)):
        changed = tables.leaves.copy()
        changed[at, 0] += 1
        yield replace(tables, leaves=changed)


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_a_fault_in_a_table_is_found_exactly_if_some_input_shows_it(seed):
    model = random_model(seed, Schema(COLUMNS, classes=("no", "yes")), n_trees=1, n_splits=9)
    tables, grid = make_lowered_tables(model), grid_of(model)
    right = sum_leaf_values(model, grid).tolist()
    assert [said_of(tables, row) for row in grid.tolist()] == right
    seen = {True: 0, False: 0}
    for faulty in faults(tables):
        structure = compare_paths(model, faulty)
        shows = any(said_of(faulty, r) != s for r, s in zip(grid.tolist(), right, strict=True))
        assert structure.proved != shows, structure.summary
        seen[shows] += 1
        for row in structure.rows:
            assert said_of(faulty, row.tolist()) != sum_leaf_values(model, row[None])[0].tolist()
    assert min(seen.values()) >= 2


def test_another_tree_of_the_same_function_is_proved():
    schema = Schema((Column("x"),), classes=("no", "yes"))
    low, middle, high = leaf([1, 3]), leaf([3, 1]), leaf([5, 1])
    first = threshold(0, 0.5, low, threshold(0, 1.5, middle, high), missing=0)
    other = threshold(0, 1.5, threshold(0, 0.5, low, middle, missing=0), high, missing=0)
    wrong = threshold(0, 1.5, threshold(0, 0.5, low, middle, missing=1), high, missing=0)
    model, same, differs = (
        make_model(schema, [build_tree(root, schema)]) for root in (first, other, wrong)
    )
    assert compare_paths(model, make_lowered_tables(same)).proved
    structure = compare_paths(model, make_lowered_tables(differs))
    assert structure.summary == "NOT the model's: 1 paths of the tree lead to different leaves"
    assert np.isnan(structure.rows).all()


def test_tables_that_are_not_trees_are_not_walked():
    model = EXTREMES["mixed"]()
    tables = make_lowered_tables(model)
    loop = tables.yes.copy()
    loop[3] = 2
    for broken, message in (
        (replace(tables, yes=loop), "tables do not form trees"),
        (replace(tables, root=tables.root[:-1]), "a different number of trees"),
        (replace(tables, feature=tables.feature + 90), "column or leaf that does not exist"),
        (replace(tables, leaves=tables.leaves[:3]), "column or leaf that does not exist"),
    ):
        structure = compare_paths(model, broken)
        assert not structure.proved
        assert message in structure.summary


# ------------------------------------------------------------------ reports


def test_a_fault_that_no_row_was_made_for_is_not_proved_equal(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    (path,) = export(model, "python", tmp_path / "m", form="table")
    few = {"random_rows": 0, "max_rows": 1}
    report = verify(model, [path], **few)
    assert str(report).startswith("the artifact is equal to the model, bit for bit: every path")
    assert "raise max_rows" not in str(report)  # further rows would prove nothing more
    text = path.read_text()
    value = array_in(text, "_VALUE")
    value[200] = math.nextafter(value[200], 0)
    path.write_bytes(with_arrays(text, _VALUE=value))
    proof = tmp_path / "proof.json"
    report = verify(model, [path], certificate=proof, **few)
    (artifact,) = report.artifacts
    told = "on the rows run; 1 differs from what this version of treekit would write: see below"
    assert str(report).startswith(f"the artifact is equal to the model, bit for bit, {told}")
    assert artifact.structure.startswith("not proved: differs from what this version")
    told = json.loads(proof.read_text())
    assert told["lowering"].startswith("proved: every path of the tree, 301 in total")
    assert told["artifacts"][0]["structure"] == artifact.structure
    (artifact,) = verify(model, [path]).artifacts  # with the usual rows
    assert artifact.differing


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('_NO = _ints("""\\\n', '_NO = _ints("""\\\nA', "cannot be read"),
        ("_ASKS = ", "_ASKED = ", "cannot be read ('_ASKS')"),
    ],
)
def test_a_file_that_cannot_be_read_back_is_not_proved(tmp_path, old, new, said):
    model = EXTREMES["mixed"]()
    (path,) = export(model, "python", tmp_path / "m", form="table")
    path.write_text(path.read_text().replace(old, new, 1))
    assert not compare_python_structure(path, model).proved
    structure = read_python_structure(path, model)
    assert not structure.proved
    assert said in structure.summary
    nested = export(model, "python", tmp_path / "n", form="if_else")[0]
    nested.write_text(nested.read_text().replace("    if ", "    while ", 1))
    assert "cannot be read" in read_python_structure(nested, model).summary


def test_a_divided_table_is_compared_entry_by_entry(tmp_path):
    model = EXTREMES["fractional"]()
    (path,) = export(model, "python", tmp_path / "m")
    assert (
        read_python_structure(path, model).summary
        == "proved: every entry of its tables, of 20 nodes"
    )
    text = path.read_text()
    high = array_in(text, "_HIGH")
    high[2] -= 1
    path.write_bytes(with_arrays(text, _HIGH=high))
    assert not compare_python_structure(path, model).proved
    assert read_python_structure(path, model).summary.startswith("NOT the model's")


def test_an_operator_with_an_invalid_name_leaves_a_graph_unread(tmp_path):
    model = EXTREMES["missing_only"]()
    (path,) = export(model, "onnx", tmp_path / "m.onnx")
    name = b"TreeEnsembleRegressor"
    path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))
    structure = compare_onnx_structure(path, model)
    assert not structure.proved
    assert structure.summary.startswith("not proved: differs from what")
