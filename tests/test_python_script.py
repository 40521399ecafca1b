"""The Python file as a program and as a typed module, for every extreme model."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference.artifacts import import_python
from tests.reference.models import mixed_schema, random_model, text_row
from tests.runtimes import need
from tests.tiers import by_size
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.export.python import export_python
from treekit.model.builder import build_tree, leaf, multiway, subset, threshold
from treekit.model.model import make_model
from treekit.model.scoring import leaf_indices
from treekit.verify.answers import REFUSED, Answers, differing

FORMS = [
    (name, form)
    for name, form in itertools.product(EXTREMES, ("if_else", "table"))
    if form == "table" or not name.startswith(("fractional", "five_thousand"))
]


def written(model, folder, **settings):
    (source,) = export_python(model, "m", **settings).values()
    (folder / "m.py").write_bytes(source)
    return folder / "m.py"


def run(folder, *arguments, given=None):
    command = [sys.executable, "-I", "-W", "error", "m.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, input=given, check=False)


@pytest.mark.parametrize(("name", "form"), by_size(FORMS))
def test_every_extreme_model_answers_bit_for_bit_and_names_its_leaves(name, form):
    model = EXTREMES[name]()
    rows = extreme_rows(model, most=25)
    names, schema = import_python(model, form=form), model.schema
    label = np.full((len(rows), len(schema.outputs)), REFUSED)
    number = np.zeros((len(rows), schema.n_values))
    for i, row in enumerate(rows.tolist()):
        cells = text_row(schema, row)
        try:
            said = names["predict"](cells)
        except ValueError:
            continue
        said = said if schema.more else [said]
        label[i], number[i] = 0, 0.0 if schema.task == "classification" else said
        if schema.task == "classification":
            shares = names["predict_proba"](cells)
            number[i] = list(itertools.chain(*shares)) if schema.more else shares
            pairs = zip(schema.outputs, said, strict=True)
            label[i] = [output.classes.index(one) for output, one in pairs]
    assert len(differing(wanted(model, rows), Answers(label, number))) == 0
    some = rows[~refused(model, rows)][:20]
    told = [names["leaves"](text_row(schema, row)) for row in some.tolist()]
    assert np.array_equal(np.array(told).reshape(len(some), -1), leaf_indices(model, some))


def test_batches_and_the_schema_are_there():
    model = EXTREMES["mixed"]()
    names = import_python(model)
    cells = [text_row(model.schema, row) for row in extreme_rows(model, most=10).tolist()]
    assert names["predict_batch"](cells) == [names["predict"](row) for row in cells]
    assert names["predict_proba_batch"](iter(cells)) == [names["predict_proba"](c) for c in cells]
    schema = names["SCHEMA"]
    assert schema["treekit"] == treekit.__version__
    assert [column["name"] for column in schema["columns"]] == list(model.schema.names)
    assert schema["columns"][1] == {
        "name": "colour",
        "kind": "nominal",
        "levels": ["red", "green", "blue"],
    }
    assert schema["outputs"] == [{"name": "target", "classes": ["no", "yes"]}]
    assert (schema["missing"], schema["unknown"], schema["input"]) == (
        "direction", "missing", "float32",
    )  # fmt: skip


KINDS = [("mixed", "if_else"), ("surrogates", "table"), ("fractional", "table"),
         ("several_labels", "table"), ("boosted_each", "if_else"), ("several_numbers", "if_else"),
         ("oblique", "table"), ("boosted_counts", "table"), ("costs", "table"),
         ("hostile_names", "table")]  # fmt: skip


@pytest.mark.matrix
def test_the_source_is_typed_and_formatted(tmp_path):
    need("ruff", "mypy")
    for name, form in KINDS:
        (source,) = export_python(EXTREMES[name](), name, form=form).values()
        (tmp_path / f"{name}.py").write_bytes(source)
    for command in (
        ["ruff", "format", "--isolated", "--check", "."],
        ["mypy", "--strict", "--config-file=", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[:3000]


# ------------------------------------------------------------------ scripts


def table_model(**policies):
    schema = Schema(
        (Column("größe"), Column("c", "nominal", ("1", "True", "a,b", " x", "?"))),
        target="ja?",
        classes=("ja", 'nein, "nie"'),
    )
    levels = {level: leaf([i + 1.0, 2.0]) for i, level in enumerate(schema.columns[1].levels)}
    root = threshold(0, 2.5, multiway(1, levels, 3), leaf([1, 9]))
    return make_model(schema, [build_tree(root, schema)], **policies)


TABLE = '\ufeffc,größe,other\n"a,b",1,x\n1,1e0,"x\ny"\n\n True,2.5,x\nnew,,x\n?,3,x\n x, NA ,\n'


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_a_script_writes_what_treekit_predict_writes(tmp_path, form):
    model = table_model()
    model.save(tmp_path / "m.treekit")
    written(model, tmp_path, form=form)
    (tmp_path / "rows.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "rows.tsv").write_text(TABLE.replace(",", "\t"), encoding="utf-8")
    for extra in ([], ["--proba"]):
        command = ["predict", str(tmp_path / "m.treekit"), str(tmp_path / "rows.csv"), *extra]
        right = CliRunner().invoke(main, command).stdout.encode()
        done = run(tmp_path, "rows.csv", *extra)
        assert (done.returncode, done.stdout, done.stderr) == (0, right, b"")
        assert run(tmp_path, *extra, given=TABLE.encode()).stdout == right
        assert run(tmp_path, "-o", "out.csv", *extra, given=TABLE.encode()).stdout == b""
        assert (tmp_path / "out.csv").read_bytes() == right


def test_refused_rows_have_empty_answers_and_are_told_by_line(tmp_path):
    written(table_model(missing="error", unknown="error"), tmp_path)
    done = run(tmp_path, "--proba", given=TABLE.encode())
    assert done.returncode == 1
    answers = done.stdout.decode().splitlines()[1:]
    assert [answer.strip(",") == "" for answer in answers] == [
        False,
        False,
        False,
        True,
        False,
        True,
    ]
    told = done.stderr.decode().splitlines()
    assert told[0] == "line 7: column 'größe' is missing, which the model refuses"
    assert told[1].startswith("line 9: column 'größe' is missing")
    assert told[2] == "rows refused, with empty answers: 2"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"c\n1\n", "error: the table has no column 'gr\\xf6\\xdfe'"),
        ("c,größe,c\n1,1,1\n".encode(), "error: the table has more than one column 'c'"),
        ("c,größe\n1\n".encode(), "error: line 2 has 1 cells, not 2"),
        ("c,größe\n\"1,1\n".encode(), "error: line 2: unexpected end of data"),
        ("c,größe\n".encode(), "error: the table has no rows"),
        ("c,größe\n\xff,1\n".encode("latin-1"), "error: the table is not UTF-8 text"),
        (b"", "error: the table has no column 'gr\\xf6\\xdfe'"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_says_why(tmp_path, table, message):
    written(table_model(), tmp_path)
    done = run(tmp_path, "-", "-o", "out.csv", given=table)
    assert done.returncode == 2
    assert done.stderr.decode().strip() == message.encode().decode("unicode_escape")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.py"]


def test_a_script_of_numbers_offers_no_probabilities_and_a_closed_pipe_is_no_error(tmp_path):
    written(random_model(1, mixed_schema(())), tmp_path)
    done = run(tmp_path, "--proba", given=b"")
    assert done.returncode == 2
    assert b"leave --proba out" in done.stderr
    (tmp_path / "rows.csv").write_text("size,colour,age,town,void\n" + "1,red,2,,\n" * 20_000)
    script = f"{sys.executable} -I -W error m.py rows.csv | head -2"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout.startswith(b"target\n")
    assert done.stderr == b""


def test_arrays_are_read_on_machines_of_either_byte_order(monkeypatch):
    names = import_python(EXTREMES["mixed"](), form="table")
    one = "AQAAAA=="  # 1, the lowest byte first
    assert names["_ints"](one).tolist() == [1]
    monkeypatch.setattr(sys, "byteorder", "big")
    assert names["_ints"](one).tolist() == [2**24]
    assert names["_doubles"]("AAAAAAAAAEA=").tolist() == [3.16e-322]  # 64 in the lowest byte


def test_a_model_of_many_nodes_is_read_as_bytes(tmp_path):
    schema = Schema(
        (Column("c", "nominal", tuple(map(str, range(40)))), Column("x")), classes=(0, 1)
    )
    rng = np.random.default_rng(0)
    trees = []
    for k in range(300):
        sides = [leaf([k + 1.0, 2.0]), leaf([1.0, k + 2.0])]
        codes = list(map(str, rng.choice(40, 20, replace=False)))
        trees.append(build_tree(threshold(1, k / 4, subset(0, codes, *sides), sides[0]), schema))
    path = written(make_model(schema, trees), tmp_path, form="table")
    assert max(map(len, path.read_text().splitlines())) < 100
