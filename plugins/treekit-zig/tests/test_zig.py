"""Zig source predicts equal bits, with any names."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import treekit
from tests.data.test_category_cells import QUESTIONS, STATES, name_state, wide_model
from treekit import registry
from treekit.testing import check_exporter
from treekit.verify import make_probes
from treekit.verify.answers import Answers, differing, expected

sys.path.insert(0, str(Path(__file__).parent))
zig = import_module("zig_runner")

LEVELS = ("a", "b", 'q"\\\n//', "d\0e")
NAMES = ('x"\\\n??/', "é\N{SNOWMAN}", "const")


def trained(number=False, **settings):
    """Train a forest on numbers and hostile category names, with missing values."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 400))
    c = np.array(LEVELS, object)[rng.integers(0, 4, 400)]
    score = x + z + (c == "a")
    z[rng.random(400) < 0.1] = np.nan
    c[rng.random(400) < 0.1] = None
    target = score * 1e9 if number else np.where(score > 0.5, 'y"es', "no")
    columns = dict(zip((*NAMES, "y"), (x, z, c, target), strict=True))
    return treekit.train(columns, "y", ensemble="forest", trees=5, seed=0, **settings)


@pytest.fixture(scope="module")
def models():
    divided = trained(number=True, missing="fractional", max_depth=4)
    return [trained(), trained(number=True), trained(dtype="float64"), divided]


@pytest.fixture(scope="module")
def artifacts(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zig")
    paths = [
        treekit.export(model, "zig", folder / f"forest{i}.zig")[0] for i, model in enumerate(models)
    ]
    schemas = [model.schema for model in models]
    return zig.compiled([path.read_bytes() for path in paths], schemas, folder)


def test_exporter_is_registered_by_its_distribution():
    assert registry.list("exporter")["zig"].distribution == "treekit-zig"


def test_exporter_passes_the_contract_checks_with_equal_bits():
    check_exporter("zig", run=zig.run)


def test_forests_predict_verification_rows_with_equal_bits(models, artifacts):
    for model, artifact in zip(models, artifacts, strict=True):
        probes = make_probes(model, 1000, 0, 100_000)
        rows = np.concatenate([probes.rows, probes.refused])
        wanted = expected(model, rows, len(probes.refused))
        assert len(rows) > 1000, "no rows beside the drawn ones"
        assert not len(differing(wanted, Answers(*artifact.answers(rows))))


def test_names_labels_and_categories_are_unchanged(models, artifacts):
    schema, artifact = models[0].schema, artifacts[0]
    assert tuple(artifact.names(0)) == NAMES
    assert artifact.names(1) == ["y"]
    assert artifact.names(2) == ["no", 'y"es']
    assert artifact.names(3, 2) == list(schema.columns[2].levels)
    assert [artifact.code(2, text) for text in schema.columns[2].levels] == [0, 1, 2, 3]
    assert artifact.code(2, "unseen") == -1


def test_source_builds_without_operating_system_and_standard_library(models, tmp_path):
    (path,) = treekit.export(models[0], "zig", tmp_path / "forest.zig")
    assert b"@import" not in path.read_bytes()
    main = 'const m = @import("forest.zig");\nexport fn f(x: *const [3]f64, out: *[2]f64) i32 {\n'
    main += "    return @intCast(m.predict(x, out) orelse return -1);\n}\n"
    (tmp_path / "main.zig").write_text(main, encoding="utf-8")
    zig.build("main.zig", "main.wasm.o", tmp_path, "-target", "wasm32-freestanding")
    assert (tmp_path / "main.wasm.o").read_bytes().startswith(b"\0asm")


ALONE = """
import ctypes, json, struct, sys
library, rows = ctypes.CDLL(sys.argv[1]), json.load(sys.stdin)
x = (ctypes.c_double * (3 * len(rows)))(*[cell for row in rows for cell in row])
labels, out = (ctypes.c_int64 * len(rows))(), (ctypes.c_double * (2 * len(rows)))()
library.m0_answer(x, ctypes.c_size_t(len(rows)), labels, out)
assert "treekit" not in sys.modules and "numpy" not in sys.modules
print(json.dumps([list(labels), [value.hex() for value in out]]))
"""


def test_exported_source_runs_without_treekit_and_the_plugin(models, artifacts, tmp_path):
    model = models[0]
    (path,) = treekit.export(model, "zig", tmp_path / "forest.zig")
    zig.compiled([path.read_bytes()], [model.schema], tmp_path)
    rows = np.random.default_rng(1).normal(size=(200, 3))
    rows[:, 2] = np.arange(200) % 4
    command = [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "models.so")]
    done = subprocess.run(
        command, input=json.dumps(rows.tolist()), text=True, capture_output=True, check=True
    )
    labels, shares = json.loads(done.stdout)
    named = {name: rows[:, i] for i, name in enumerate(NAMES)}
    named[NAMES[2]] = [model.schema.columns[2].levels[int(code)] for code in rows[:, 2]]
    assert [model.schema.classes[k] for k in labels] == list(model.predict(named))
    assert shares == [share.hex() for share in model.predict_proba(named).ravel().tolist()]


def test_category_texts_get_the_codes_of_the_model(tmp_path):
    model = wide_model()
    (path,) = treekit.export(model, "zig", tmp_path / "m.zig")
    (compiled,) = zig.compiled([path.read_bytes()], [model.schema], tmp_path / "build")
    codes = [compiled.code(feature, text) for feature, text in QUESTIONS]
    assert [name_state((-1 if np.isnan(c) else c, np.isnan(c))) for c in codes] == STATES


def test_user_templates_take_precedence(models, tmp_path):
    (tmp_path / "zig").mkdir()
    (tmp_path / "zig" / "table.jinja").write_text("// mine: {{ trees }}\n", encoding="utf-8")
    (path,) = treekit.export(models[0], "zig", tmp_path / "m.zig", templates=str(tmp_path))
    assert path.read_text(encoding="utf-8").endswith("// mine: 5\n")


def test_command_line_exports_zig(models, tmp_path):
    models[0].save(tmp_path / "m.treekit")
    command = [Path(sys.executable).with_name("treekit"), "export", tmp_path / "m.treekit"]
    subprocess.run([*command, "--to", "zig", "-o", tmp_path / "m.zig"], check=True)
    written = (tmp_path / "m.zig").read_bytes()
    assert written == treekit.export(models[0], "zig", tmp_path / "again.zig")[0].read_bytes()
