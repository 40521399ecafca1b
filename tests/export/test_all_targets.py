"""Stored model files load and predict as when they were written, and export the same bytes.

The files, their rows and predictions are in ``tests/snapshots/models``, the digests of their
artifacts in ``tests/snapshots/artifacts.txt``.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import re
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference import evaluate
from tests.reference.artifacts import compile_c, export_python, import_python
from tests.reference.models import text_row
from tests.snapshots.answers import (
    ANSWERS,
    MODELS_FOLDER,
    differences,
    read_answers,
    read_sections,
    shown_answers,
)
from tests.snapshots.artifacts import (
    LIBRARIES,
    digest_lines,
    installed_versions,
    recorded_versions,
    stored_lines,
    uses,
)
from tests.snapshots.make_models import MODELS, TRAINED, main, model_path
from tests.tiers import by_size, later
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.export.literals import (
    Code,
    identifier,
    identifiers,
    list_template_folders,
    render_from,
    string_literal,
)
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.tree import Tree
from treekit.verify.answers import REFUSED

# ---------------------------------------------------------------- artifact bytes

QUICK = (
    *("trained_tree", "trained_surrogates", "trained_forest", "trained_regression_forest"),
    *("read_xgboost", "boosted_two", "costs", "fractional", "hostile_names", "mixed", "oblique"),
    *("one_leaf", "refuses_missing", "refuses_unseen", "several_labels", "float64_extremes"),
)
"""Models of the first tier: one or two of each kind."""
REWRITE = """to see what changed, before and after:
  python -m tests.snapshots.artifacts NAME FOLDER
if that is meant: python -m tests.snapshots artifacts.txt"""
RECORDED, INSTALLED = recorded_versions(), installed_versions()
OTHER_VERSIONS = [library for library in LIBRARIES if RECORDED[library] != INSTALLED[library]]

stored_model = cache(lambda name: treekit.load(model_path(name)))
artifact_lines = cache(stored_lines)
answer_sections = cache(lambda: read_sections(ANSWERS))


def test_every_stored_model_has_files_predictions_and_digests() -> None:
    names = sorted(MODELS)
    for suffix in (".treekit", ".npz"):
        assert sorted(path.stem for path in MODELS_FOLDER.glob(f"*{suffix}")) == names
    assert sorted(answer_sections()) == names
    assert sorted(artifact_lines()) == names, f"stale or missing models; {REWRITE}"


@pytest.mark.parametrize("name", MODELS)
def test_stored_models_give_the_stored_predictions(name: str) -> None:
    rows, stored = read_answers(model_path(name, ".npz"))
    found = differences(stored_model(name), rows, stored)
    assert not found, "\n".join([f"model {name}:", *found])
    assert shown_answers(stored_model(name), rows) == answer_sections()[name]


# Parts of numbers take finer steps since version 5 of the format.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "fractional_numbers"])
def test_saving_a_stored_model_gives_the_same_file(name: str, tmp_path: Path) -> None:
    stored_model(name).save(tmp_path / "again.treekit")
    before, after = model_path(name), tmp_path / "again.treekit"
    old, new = entries_of(before), entries_of(after)
    other = [entry for entry in sorted(old | new) if old.get(entry) != new.get(entry)]
    assert not other, f"entries differ: {', '.join(other)}"
    assert list(old) == list(new)
    assert after.read_bytes() == before.read_bytes()


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else later(name) for name in MODELS],
)
def test_artifacts_have_the_stored_digests(name: str) -> None:
    made = digest_lines(stored_model(name), without=OTHER_VERSIONS)
    stored = {
        form: line
        for form, line in artifact_lines().get(name, {}).items()
        if not uses(form, OTHER_VERSIONS)
    }
    found = list(changed_lines(stored, made))
    assert not found, "\n".join([f"artifacts of model {name!r} changed:", *found, REWRITE])


@pytest.mark.parametrize("library", LIBRARIES)
def test_artifacts_are_made_by_the_recorded_library_versions(library: str) -> None:
    if library in OTHER_VERSIONS:
        pytest.skip(
            f"artifacts.txt was written with {library} {RECORDED[library]}, and "
            f"{INSTALLED[library]} is installed: forms that start with "
            f"{' or '.join(map(repr, LIBRARIES[library]))} are not compared"
        )
    assert any(uses(form, [library]) for lines in artifact_lines().values() for form in lines)


def test_digests_do_not_depend_on_the_version_of_treekit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stored_model("one_leaf")
    before = digest_lines(model)  # also imports what is imported when it is used
    for module in [found for key, found in sys.modules.items() if key.startswith("treekit")]:
        if hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "12.345.6")
    assert digest_lines(model) == before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.kernels if name in QUICK else pytest.mark.system)
        if name not in QUICK or "surrogates" in name
        else name
        for name in TRAINED
        if not name.startswith(("read_", "learned_"))  # in the tests of their plugins
    ],
)
def test_training_again_gives_the_same_model(name: str) -> None:
    found = list(model_differences(stored_model(name), TRAINED[name]()))
    assert not found, "\n".join([f"model {name!r} is trained otherwise:", *found])


def test_an_existing_model_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    before = model_path("one_leaf").stat()
    with pytest.raises(SystemExit):
        main(["one_leaf"])
    assert "--replace" in capsys.readouterr().err
    assert model_path("one_leaf").stat() == before


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed_lines(stored: dict[str, str], made: dict[str, str]) -> Iterator[str]:
    """Say for which targets an artifact changed."""
    for group in dict.fromkeys([*stored, *made]):
        before, after = stored.get(group, "no line"), made.get(group, "no longer made")
        if before != after:
            yield f"  {group}: {after}; stored: {before}"


def model_differences(stored: Model, made: Model) -> Iterator[str]:
    """Name what differs in a model: trees exactly, but gains within 1e-12, and stored settings."""
    for field in dataclasses.fields(Model):
        if field.name not in ("trees", "settings", "provenance"):
            before, after = (np.asarray(getattr(model, field.name)) for model in (stored, made))
            if not np.array_equal(before, after):
                yield f"  {field.name}: {array_difference(before, after)}"
    for setting, value in stored.settings.items():
        if made.settings.get(setting) != value:
            yield f"  setting {setting}: {made.settings.get(setting)!r}, stored {value!r}"
    for number, (before, after) in enumerate(zip(stored.trees, made.trees, strict=False)):
        for field in dataclasses.fields(Tree):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if not same_array(field.name, old, new):
                yield f"  tree {number}, {field.name}: {array_difference(old, new)}"
    if made.n_trees != stored.n_trees:
        yield f"  {made.n_trees} trees, stored {stored.n_trees}"


def same_array(name: str, old: Any, new: Any) -> bool:
    if name == "gain":
        return old.shape == new.shape and np.allclose(new, old, rtol=1e-12, atol=0.0)
    same: bool = old.dtype == new.dtype and old.tobytes() == new.tobytes()
    return same


def array_difference(old: Any, new: Any) -> str:
    """Describe two arrays that differ, by the first entry that does."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{new.dtype} of shape {new.shape}, stored {old.dtype} of shape {old.shape}"
    if not old.shape:
        return f"{new}, stored {old}"
    at = tuple(np.argwhere((old != new) & ~((old != old) & (new != new)))[0].tolist())
    return f"entry {at} is {new[at]!r}, stored {old[at]!r}"


# ---------------------------------------------------------------- extremes
# The shared list of extreme models says what the definition says, and its rows tell.


@pytest.mark.parametrize("name", by_size(EXTREMES))
def test_stored_predictions_equal_the_reference(name):
    model = EXTREMES[name]()
    assert EXTREMES[name]() is model
    rows = extreme_rows(model, most=60)
    some = rows[np.random.default_rng(0).permutation(len(rows))[:12]]
    answers = wanted(model, some)
    assert ((answers.label == REFUSED).all(axis=1) == refused(model, some)).all()
    for i, row in enumerate(some.tolist()):
        try:
            said = evaluate.predict(model, row)
        except evaluate.Refused:
            assert (answers.label[i] == REFUSED).all()
            continue
        said = said if model.schema.more else [said]
        if model.schema.task == "regression":
            assert answers.number[i].tolist() == said
        else:
            assert answers.label[i].tolist() == said
            assert answers.number[i].tolist() == evaluate.probabilities(model, row)


@pytest.mark.matrix
def test_stored_rows_reach_many_leaves():
    for name, make in EXTREMES.items():
        model = make()
        rows = extreme_rows(model)
        told = wanted(model, rows)
        answers = {tuple(bits) for bits in told.number.view(np.int64).tolist()}
        votes = {tuple(units) for units in model.units.tolist()}
        assert len(answers) >= min(len(votes) // 2 + 1, 15), name
        assert np.isnan(rows).all(axis=1).any()


def test_stored_models_cover_every_policy_task_and_link():
    models = [make() for make in EXTREMES.values()]
    tasks, dtypes = ("classification", "regression"), ("float32", "float64")
    assert {(m.schema.task, m.schema.dtype) for m in models} == set(
        itertools.product(tasks, dtypes)
    )
    assert {m.missing for m in models} == {"direction", "fractional", "surrogate", "error"}
    assert {m.voting for m in models} == {"soft", "hard"}
    assert {m.combine for m in models} == {"mean", "sum"}
    assert {m.link for m in models} == {"identity", "exp", "sigmoid", "softmax"}
    assert {len(m.schema.outputs) for m in models} >= {1, 2, 3}


# ---------------------------------------------------------------- hostile names
# No name breaks generated source, none becomes code, and each comes back unharmed.

NAN = float("nan")
HOSTILE = (
    'double " quote',
    "single ' quote",
    '"""',
    "'''",
    "new\nline",
    "carriage\rreturn\r\n",
    "*/ #error */",
    "/* open",
    "// comment \\",
    "trailing backslash \\",
    "// trigraph ??/",
    "??/ ??' ??< ??= ??)",
    "\\",
    "\\x41\\101\\u0022",
    "\x01\x1f\x7fcontrol\tand\x0bmore",
    "\x01f",
    "\x80\x9f\u2028\u2029line ends",
    "{{ 1/0 }}",
    "{% include 'x' %}{# #}",
    "{{ p }}",
    "%s%n%d",
    "__import__('os')",
    '"); system("true"); ("',
    "int",
    "class",
    "None",
    "return",
    "_Bool",
    "#define x y",
    "汽车 价格",
    "汽车_价格",
    "🐧",
    "a b",
    "a_b",
    "a-b",
    "a_b_34",
    "a b_33",
    "9lives",
    "\u202egnirts",
    "é",
    "e\u0301",
    "long " * 2000,
    "é" * 3000 + '\n"',
    " ",
)


def hostile_model(classes: tuple[str, ...] = HOSTILE) -> Model:
    """Hostile names of features, levels, classes and target, all in use."""
    nominal = [Column("levels " + name, "nominal", HOSTILE) for name in HOSTILE[:3]]
    schema = Schema(
        (*map(Column, HOSTILE), *nominal), target=HOSTILE[5], classes=classes, dtype="float64"
    )
    trees = []
    for feature in range(len(HOSTILE)):
        first, second = (
            leaf([float(c == feature + k) + 0.01 for c in range(len(classes))]) for k in (0, 1)
        )
        low = subset(len(HOSTILE) + feature % 3, HOSTILE[feature : feature + 7], first, second)
        trees.append(build_tree(threshold(feature, 0.5, low, second), schema))
    return make_model(schema, trees)


def hostile_rows() -> list[list[float]]:
    n = len(HOSTILE)
    rows = [[float((i + r) % 3 == 0) for i in range(n)] for r in range(n)]
    return [[*row, float(r), float(n - r), NAN] for r, row in enumerate(rows)]


MODEL = hostile_model()


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_c_with_hostile_names_compiles_predicts_and_returns_names(tmp_path, form):
    program = compile_c(MODEL, tmp_path, form=form)
    labels, out = program.run(hostile_rows())
    assert labels == [evaluate.predict(MODEL, row) for row in hostile_rows()]
    assert out == [evaluate.probabilities(MODEL, row) for row in hostile_rows()]
    for kind, names in (("feature", MODEL.schema.names), ("class", MODEL.schema.classes)):
        name = program.function(f"{kind}_name", ctypes.c_char_p, ctypes.c_int)
        assert [name(i).decode() for i in range(len(names))] == list(names)
    code = program.function("level_code", ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
    feature = len(HOSTILE) + 1
    assert [code(feature, text.encode()) for text in HOSTILE] == list(range(len(HOSTILE)))


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_python_with_hostile_names_runs_predicts_and_returns_names(form):
    names = import_python(MODEL, form=form)
    assert names["FEATURES"] == MODEL.schema.names
    assert names["CLASSES"] == HOSTILE
    assert list(names["LEVELS"].values()) == [HOSTILE] * 3
    for row in hostile_rows():
        cells = text_row(MODEL.schema, row)
        assert names["predict"](cells) == HOSTILE[int(evaluate.predict(MODEL, row))]
        named = dict(zip(MODEL.schema.names, cells, strict=True))
        assert names["predict_proba"](named) == evaluate.probabilities(MODEL, row)


@pytest.mark.parametrize("export", [export_c, export_python])
@pytest.mark.parametrize("form", ["if_else", "table"])
def test_source_is_plain_ascii_without_trigraphs_or_joined_lines(export, form):
    for content in export(MODEL, "m", form=form).values():
        text = content.decode("ascii")
        assert set(text) <= {"\n", *map(chr, range(32, 127))}
        if export is export_c:
            assert "??" not in text
            assert not re.search(r"\\$", text, re.MULTILINE)


def tame_model() -> Model:
    """The hostile model with names that nobody could object to."""
    names = tuple(f"n{i}" for i in range(len(HOSTILE)))
    columns = (
        Column(f"c{i}", column.kind, names if column.levels else ())
        for i, column in enumerate(MODEL.schema.columns)
    )
    return make_model(Schema(tuple(columns), classes=names, dtype="float64"), MODEL.trees)


def without_strings(source: str) -> str:
    """Source without literals, and without the order in which C sorts the levels."""
    source = re.sub(r"static const char m_text_\d+\[\] = (?:'[^\n]*|[^';])*;\n\n", "", source)
    source = re.sub(r"\bm_text_\d+\b", "S", source)
    source = re.sub(r"""'(\\.|[^'\\\n])*'|"(\\.|[^"\\\n])*\"""", "S", source)
    return re.sub(r"(level_codes\[\] = )\{[^}]*\}", r"\1C", source)


@pytest.mark.parametrize(("export", "file"), [(export_c, "m.c"), (export_python, "m.py")])
def test_hostile_names_change_string_literals_only(export, file):
    hostile, tame = (export(m, "m", form="table")[file].decode() for m in (MODEL, tame_model()))
    assert hostile != tame
    assert without_strings(hostile) == without_strings(tame)


def test_identifiers_are_distinct_and_made_of_safe_characters():
    made = identifiers([*HOSTILE, "column", "column_3", "", "!"], "in_")
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"in_[A-Za-z0-9_]+", text) for text in made)


def test_identifiers_are_derived_from_their_names():
    assert identifiers(["Age", "hours per week", "汽车"], "in_") == [
        "in_Age",
        "in_hours_per_week",
        "in_column",
    ]
    assert identifiers(["a b", "a_b", "a_b_1"], "") == ["a_b_0", "a_b_1", "a_b_1_2"]
    assert identifier("__3 x__", "model") == "model_3_x"


@pytest.mark.parametrize("text", ["a\0b", "\0", "half \ud800 a pair"])
def test_text_that_c_cannot_represent_is_refused(text):
    with pytest.raises(ExportError, match="rename it"):
        string_literal(text, "c")


def test_python_represents_any_text():
    schema = Schema((Column("a\0b"),), classes=("half \ud800 a pair", "\0"))
    model = make_model(schema, [build_tree(leaf([2, 1]), schema)])
    assert import_python(model)["predict"]([1]) == "half \ud800 a pair"


def test_user_template_takes_precedence_and_cannot_write_unescaped_text(tmp_path):
    (tmp_path / "python").mkdir()
    own = tmp_path / "python" / "module.jinja"
    own.write_text("# {{ trees }} {{ label_values[0][0] }}\n")
    assert list_template_folders(tmp_path)[0] == tmp_path
    (made,) = export_python(MODEL, "m", templates=str(tmp_path)).values()
    assert made == f"# {len(HOSTILE)} {HOSTILE[0]!r}\n".encode()
    assert export_c(MODEL, "m", templates=str(tmp_path)) == export_c(MODEL, "m")
    for source, message in [
        ("{{ name }}", "which is unescaped text"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{% oops %}", "unknown tag 'oops'"),
    ]:
        own.write_text(source)
        with pytest.raises(ExportError, match=message):
            render_from([tmp_path], "python/module.jinja", name="\n#error", trees=Code("1"))


def test_missing_template_folder_is_refused():
    with pytest.raises(ExportError, match="'no such folder' is not a folder"):
        export_c(MODEL, "m", templates="no such folder")
