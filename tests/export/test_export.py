"""`treekit.export`: one call writes all files or none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.reference import evaluate
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.strategies import ALL_KINDS, matrices, models
from treekit.contracts import Exporter, Setting
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export import export
from treekit.export.languages import treekit_exporters
from treekit.export.lowering import LoweredTree, Step, lower, require_depth
from treekit.exporting import (
    ABILITIES,
    Language,
    hex_literal,
    needs,
    string_literal,
    template_exporter,
)
from treekit.model.builder import (
    Surrogate,
    build_tree,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.tree import DerivedColumns, make_derived_columns

# ---------------------------------------------------------------- export

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


def test_exporter_record_is_accepted_as_target(tmp_path):
    export(MODEL, PAIR, tmp_path / "x.a")
    assert files(tmp_path) == {"x.a": b"1", "x.b": b"2"}


def test_exporter_settings_are_checked_and_passed_on(tmp_path):
    export(MODEL, BUILTIN["c"], tmp_path / "m.c", form="table")
    assert '"table"' in (tmp_path / "m.h").read_text()
    with pytest.raises(SettingError, match="one of auto, readable, full, if_else, hybrid, table"):
        export(MODEL, BUILTIN["c"], tmp_path / "m.c", form="tables")
    with pytest.raises(SettingError, match="no setting 'shape'"):
        export(MODEL, BUILTIN["python"], tmp_path / "m.py", shape=1)


def test_defaults_of_settings_are_filled_in(tmp_path):
    def write(_, name, **settings):
        return {f"{name}.t": repr(settings).encode()}

    exporter = Exporter("t", ".t", write, (Setting("depth", 3, "how deep"),))
    (path,) = export(MODEL, exporter, tmp_path / "m.t")
    assert path.read_text() == "{'depth': 3}"


@pytest.mark.parametrize(
    "name", ["m.c", "m.ONNX", "m.rules.txt", "m.A", "m.pt", "m.a.gz", ".a", ""]
)
def test_file_suffix_of_another_format_is_refused(tmp_path, name):
    with pytest.raises(ExportError, match=r"must end in '\.a'"):
        export(MODEL, PAIR, f"{tmp_path}/{name}" if name else "")
    assert files(tmp_path) == {}


@pytest.mark.parametrize("name", ["labor.c45", "model.v1", "model.2"])
def test_suffix_with_a_digit_is_part_of_the_name(tmp_path, name):
    assert export(MODEL, PAIR, tmp_path / name) == [
        tmp_path / f"{name}.a",
        tmp_path / f"{name}.b",
    ]


@pytest.mark.parametrize("name", ["m", "m.rules", "m.rules.txt"])
def test_partial_double_suffix_is_completed(tmp_path, name):
    assert export(MODEL, BUILTIN["rules"], tmp_path / name) == [tmp_path / "m.rules.txt"]


@pytest.mark.parametrize("name", ["../m.a", "/m.a", "folder/m.a", "..", "", "a\\b"])
def test_exporter_cannot_write_outside_the_output_folder(tmp_path, name):
    exporter = Exporter("sly", ".a", lambda *_: {name: b""})
    with pytest.raises(PluginError, match=r"exporter .sly. .* file names must be plain"):
        export(MODEL, exporter, tmp_path / "inner" / "m.a")
    assert list(tmp_path.rglob("*.a")) == []


def test_failed_export_leaves_existing_files_unchanged(tmp_path):
    export(MODEL, PAIR, tmp_path / "x.a")
    broken = Exporter("pair", ".a", lambda _, name: {f"{name}.a": b"new", f"{name}.b": None})
    with pytest.raises(PluginError, match=r"returned a NoneType for .x\.b., not bytes"):
        export(MODEL, broken, tmp_path / "x.a")
    assert files(tmp_path) == {"x.a": b"1", "x.b": b"2"}


def test_folder_at_the_output_path_raises_export_error(tmp_path):
    (tmp_path / "x.a").mkdir()
    with pytest.raises(ExportError, match="cannot write"):
        export(MODEL, PAIR, tmp_path / "x.a")
    assert files(tmp_path) == {}


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for target in ("c", "python"):
        for folder in ("one", "two"):
            export(MODEL, BUILTIN[target], tmp_path / folder / f"m{BUILTIN[target].suffix}")
    assert files(tmp_path / "one") == files(tmp_path / "two")


# ---------------------------------------------------------------- exporting
# A folder of templates and one record make a target, from public names alone.

JSON = Language(strings="json")

TREES = """\
{"names": [{% for c in columns %}{{ c.name }}{% if not loop.last %}, {% endif %}{% endfor %}],
 "labels": [{% for label in labels[0] %}{{ label }}{% if not loop.last %}, {% endif %}{% endfor %}],
 "value": [{{ nodes.value }}], "question": [{{ nodes.question }}],
 "yes": [{{ nodes.yes }}], "no": [{{ nodes.no }}], "root": [{{ root }}], "sets": [{{ sets }}],
 "levels": [{{ level_counts }}], "start": [{{ leaves.start }}], "column": [{{ leaves.column }}],
 "units": [{{ leaves.units }}], "outputs": {{ outputs }}, "total": {{ unit_total }}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "templates"
    place.mkdir()
    (place / "model.jinja").write_text(TREES, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=200), np.array(["a", "b", 'q"\\\n</script>'], object)
    c = c[rng.integers(0, 3, 200)]
    y = np.where(x + (c == "a") > 0, "yes\u2028", "no")
    x[::9] = np.nan
    return {'x"\N{GRINNING FACE}': x, "c": c, "y": y}


def walked(told, row):
    """Votes of a row, by the tables alone: what a template's own loop would do."""
    votes = [0] * told["outputs"]
    for start in told["root"]:
        node = start
        while node >= 0:
            feature, kind = divmod(told["question"][node], 4)
            x, value = row[feature], told["value"][node]
            if kind == 2:
                first, count, *words = told["sets"][int(value) :]
                word = -1 if x != x else int(x) // 32 - first
                yes = 0 <= word < count and words[word] >> int(x) % 32 & 1 == 1
            else:
                yes = (x <= value, not x > value, None, x != x)[kind]
            node = told["yes" if yes else "no"][node]
        for at in range(told["start"][-1 - node], told["start"][-node]):
            votes[told["column"][at]] += told["units"][at]
    return votes


def test_template_values_predict_as_the_model(folder, table, tmp_path):
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON)
    model = treekit.train(table, "y", ensemble="forest", trees=5, seed=0)
    (path,) = treekit.export(model, exporter, tmp_path / "out")
    told = json.loads(path.read_text(encoding="ascii"))
    assert told["names"] == list(model.schema.names)
    assert told["labels"] == ["no", "yes\u2028"]
    levels = model.schema.columns[1].levels
    rows = [[x, levels.index(c)] for x, c in zip(*list(table.values())[:2], strict=True)]
    shares = np.array([walked(told, row) for row in rows]) / told["total"]
    assert np.array_equal(shares, model.predict_proba(table))


def test_model_beyond_the_abilities_of_a_template_is_refused(folder, table):
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON)
    able = template_exporter(
        "json", ".json", folder, "model.jinja", JSON, abilities=("costs", "parts", "wide")
    )
    model = treekit.train(table, "y", max_depth=2, costs={("no", "yes\u2028"): 3.0})
    assert needs(model) == ["costs"]
    with pytest.raises(ExportError, match="'json' does not support misclassification costs"):
        exporter.export(model, "m")
    assert able.export(model, "m")
    with pytest.raises(ValueError, match="unknown ability 'speed'; known: sums"):
        template_exporter("json", ".json", folder, "model.jinja", JSON, abilities=("speed",))
    assert set(ABILITIES) == {"sums", "parts", "costs", "targets", "links", "wide", "floors"}
    with pytest.raises(ExportError, match=r"'json' does not support .*rounded down in parts"):
        able.export(random_model(7, mixed_schema(()), missing="fractional"), "m")


def test_user_folder_takes_precedence_and_templates_get_settings(folder, table, tmp_path):
    (folder / "note.jinja").write_text("{{ stem }} {{ width }}\n", encoding="utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.jinja").write_text("mine\n", encoding="utf-8")
    exporter = template_exporter(
        "json",
        ".json",
        folder,
        {".json": "model.jinja", ".note": "note.jinja"},
        JSON,
        settings=(Setting("width", 80, "columns of a line"),),
    )
    model = treekit.train(table, "y", max_depth=1)
    settings = {"templates": str(own), "width": 3}
    paths = treekit.export(model, exporter, tmp_path / "a b", **settings)
    assert [path.name for path in paths] == ["a b.json", "a b.note"]
    assert [path.read_text(encoding="utf-8") for path in paths] == ["mine\n", "a_b 3\n"]
    with pytest.raises(ExportError, match="is not a folder; give one"):
        treekit.export(model, exporter, tmp_path / "m", templates=str(tmp_path / "gone"))
    with pytest.raises(SettingError, match="width"):
        treekit.export(model, exporter, tmp_path / "m", width="wide")


def test_template_cannot_write_unescaped_text(folder, table):
    (folder / "model.jinja").write_text("{{ note }}\n", encoding="utf-8")
    note = Setting("note", "x; y", "text that nobody escaped")
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON, settings=(note,))
    with pytest.raises(ExportError, match="which is unescaped text"):
        exporter.export(treekit.train(table, "y", max_depth=1), "m", note="x; y")


@pytest.mark.parametrize(
    "text", ['"\\\n\0', "\N{SNOWMAN}/*??/", "${x}#{y}%s", "\u2028\N{GRINNING FACE}"]
)
def test_string_literals_are_escaped_ascii_and_decode_to_the_text(text):
    for style, escape in (("bytes", "\\x"), ("json", "\\u")):
        literal = string_literal(text, style)
        assert literal.isascii()
        assert all(character not in literal[1:-1] for character in "\"\n$#%*?/<>'")
        assert literal.count("\\") == literal.count(escape)
    assert json.loads(string_literal(text, "json")) == text
    # bytes in Python reads the same escapes as Zig, Go, Lua and Rust do
    body = string_literal(text, "bytes")[1:-1]
    assert body.encode().decode("unicode_escape").encode("latin-1").decode() == text
    with pytest.raises(ExportError, match="not valid Unicode"):
        string_literal("\ud800", "bytes")


@pytest.mark.parametrize("number", [0.1, -5e-324, 1.7976931348623157e308, -0.0, 2.0**60])
def test_hexadecimal_float_literals_are_exact(number):
    read = float.fromhex(hex_literal(number))
    assert (read, math.copysign(1, read)) == (number, math.copysign(1, number))
    assert Language("bytes", floats="hex").array(np.array([number])) == hex_literal(number)
    assert Language("bytes").array(np.zeros(0)) == "0.0"


# ---------------------------------------------------------------- lower
# Lowered trees answer what the n-ary trees answer, in one plain form.

SCHEMA = mixed_schema()
SLOW = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
A, B, C = leaf([3, 1]), leaf([1, 3]), leaf([0, 7])


def walk(tree: LoweredTree, model: Model, row: list[float]) -> int:
    """The plain reading of what a lowered node means."""
    node = 0
    while tree.kind[node] != Step.LEAF:
        feature = tree.feature[node]
        x = row[feature]
        derived = feature >= model.schema.n_features
        column = Column("derived") if derived else model.schema.columns[feature]
        if column.kind == "nominal":
            missing = x not in range(len(column.levels))
        else:
            x = evaluate.to_float32(x) if model.schema.dtype == "float32" else x
            missing = x != x
        if tree.kind[node] == Step.LE:
            yes = tree.missing_yes[node] if missing else x <= tree.threshold[node]
        elif tree.kind[node] == Step.IN:
            yes = not missing and x in tree.codes(node)
        else:
            yes = missing
        node = tree.yes[node] if yes else tree.no[node]
    return int(tree.leaf[node])


def one(root) -> LoweredTree:
    return lower(make_model(SCHEMA, [build_tree(root, SCHEMA)]))[0]


@pytest.mark.parametrize("seed", range(4))
def test_lowered_trees_reach_the_leaves_of_the_reference(seed):
    schema = mixed_schema(dtype=("float32", "float64")[seed % 2])
    model = random_model(seed, schema, n_splits=60)
    lowered = lower(model)
    for row in probe_rows(model):
        assert [walk(tree, model, row) for tree in lowered] == evaluate.leaf_rows(model, row)


def test_an_oblique_split_tests_a_derived_column():
    schema = Schema((Column("a"), Column("b")), classes=("no", "yes"))
    root = threshold("a", 1.0, A, oblique({"a": 1.0, "b": -2.0}, 3.5, B, C, missing=0))
    (tree,) = lower(make_model(schema, [build_tree(root, schema)]))
    assert tree.kind.tolist() == [Step.LE, Step.LEAF, Step.LE, Step.LEAF, Step.LEAF]
    assert tree.feature.tolist() == [0, -1, 2, -1, -1]
    assert tree.threshold[[0, 2]].tolist() == [1.0, 0.0]
    assert tree.missing_yes.tolist() == [False, False, True, False, False]


def test_a_split_with_surrogates_tests_its_own_derived_column():
    schema = mixed_schema()
    others = [Surrogate("age", at=2.0)]
    first = threshold("size", 1.0, A, B, surrogates=others)
    second = subset("colour", ["red"], A, B, missing=0, surrogates=others)
    model = make_model(
        schema, [build_tree(t, schema) for t in (first, second)], missing="surrogate"
    )
    trees = lower(model)
    assert [tree.feature[0] for tree in trees] == [schema.n_features, schema.n_features + 1]
    assert [tree.kind[0] for tree in trees] == [Step.LE, Step.LE]
    assert [len(tree.set_codes) for tree in trees] == [0, 0]


@SLOW
@given(st.data())
def test_lowered_trees_with_derived_columns_reach_the_leaves_of_the_model(data):
    model = data.draw(models(kinds=ALL_KINDS - {"fractional"}))
    rows = data.draw(matrices(model)).tolist()
    lowered, columns = lower(model), make_derived_columns(model)
    for row in rows:
        wide = row + [derived_value(model, columns, d, row) for d in range(columns.n_columns)]
        assert [walk(tree, model, wide) for tree in lowered] == evaluate.leaf_rows(model, row)


def derived_value(model: Model, columns: DerivedColumns, number: int, row: list[float]) -> float:
    """The plain reading of what a derived column is."""
    for test in range(columns.test_start[number], columns.test_start[number + 1]):
        branch = columns.lost[test]
        if (feature := columns.level_feature[test]) >= 0:
            levels = columns.level_branch[columns.level_start[test] : columns.level_start[test + 1]]
            if row[feature] in range(len(levels)):
                branch = levels[int(row[feature])]
        else:
            total = 0.0
            for term in range(columns.term_start[test], columns.term_start[test + 1]):
                x = row[columns.term_feature[term]]
                x = evaluate.to_float32(x) if model.schema.dtype == "float32" else x
                total += columns.term_weight[term].item() * x
            if total == total:
                side = columns.below if total <= columns.threshold[test] else columns.above
                branch = side[test]
        if branch >= 0:
            return float(branch)
    return float("nan")


def test_lowering_refuses_fractional_instances():
    model = make_model(SCHEMA, [build_tree(A, SCHEMA)], missing="fractional")
    with pytest.raises(ExportError, match=r"uses fractional instances \(missing='fractional'\)"):
        lower(model)


@pytest.mark.parametrize("seed", range(4))
def test_lowered_nodes_are_in_pre_order_with_the_yes_branch_first(seed):
    for tree in lower(random_model(seed, SCHEMA, n_splits=60)):
        seen, todo, deepest = [], [(0, 0)], 0
        while todo:
            node, depth = todo.pop()
            seen.append(node)
            deepest = max(deepest, depth)
            if tree.kind[node] != Step.LEAF:
                assert tree.yes[node] == node + 1
                todo += [(tree.no[node], depth + 1), (tree.yes[node], depth + 1)]
        assert seen == list(range(tree.n_nodes))
        assert deepest == tree.depth


def test_a_multiway_split_is_a_chain_that_ends_in_the_missing_branch():
    tree = one(multiway("colour", {"blue": A, "red": B, "green": C}, missing=1))
    assert tree.kind.tolist() == [Step.IN, Step.LEAF, Step.IN, Step.LEAF, Step.LEAF]
    assert [tree.codes(0).tolist(), tree.codes(2).tolist()] == [[2], [1]]
    assert tree.leaf.tolist() == [-1, 0, -1, 2, 1]


def test_branch_without_categories_is_dropped():
    tree = one(subset("colour", [], A, B, missing=1))
    assert tree.kind.tolist() == [Step.LEAF]
    assert tree.leaf.tolist() == [1]


def test_categories_absent_in_a_node_are_in_no_set():
    tree = one(subset("colour", ["red"], A, B, missing=0, absent=["blue"]))
    assert tree.codes(0).tolist() == [1]
    assert tree.leaf.tolist() == [-1, 1, 0]


def test_lowered_threshold_keeps_its_missing_branch():
    assert one(threshold("age", 2.5, A, B, missing=0)).missing_yes.tolist() == [True, False, False]
    assert one(threshold("age", 2.5, A, B, missing=1)).missing_yes.tolist() == [False] * 3


def test_leaf_numbers_continue_from_tree_to_tree():
    model = random_model(3, SCHEMA, n_trees=4)
    used = np.concatenate([tree.leaf[tree.leaf >= 0] for tree in lower(model)])
    assert len(np.unique(used)) == len(used)
    assert used.max() < len(model.units)


def test_lowered_arrays_are_read_only():
    tree = one(threshold("age", 2.5, A, B))
    with pytest.raises(ValueError, match="read-only"):
        tree.threshold[0] = 3.0


def test_a_tree_at_the_depth_bound_is_lowered():
    (tree,) = lower(chain(5000, SCHEMA))
    assert tree.depth == 5000
    require_depth((tree,), "x")


def test_tree_too_deep_after_lowering_of_category_sets_is_refused():
    node = A
    for _ in range(1700):
        node = (
            multiway(
                "colour",
                {
                    "red": B,
                    "green": C,
                    "blue": A,
                },
                missing=0,
            )
            if (node is A)
            else subset(
                "colour", ["red"], multiway("colour", {"red": B, "green": C, "blue": node}), A
            )
        )
    trees = lower(make_model(SCHEMA, [build_tree(node, SCHEMA)]))
    assert trees[0].depth > 5000
    with pytest.raises(ExportError, match="onnx supports trees up to 5000 binary splits deep"):
        require_depth(trees, "onnx")
