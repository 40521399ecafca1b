"""Categorical cells match equally in every kind of table, server request and exported model."""

from __future__ import annotations

import csv
import ctypes
import datetime as dt
import json
import math
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

import treekit
from tests.examples import examples
from tests.reference.artifacts import compile_c, import_python
from tests.reference.encode import level_of, state_of
from tests.runtimes import need
from treekit.cli.predict import compute_scores
from treekit.data.schema import Column, Notation, Schema
from treekit.data.table import read_table
from treekit.data.text_format import NUMBER_MARKS
from treekit.errors import DataError
from treekit.estimators import DecisionTreeClassifier
from treekit.explain.row import read_row
from treekit.export.lowering import lower_unless_fractional
from treekit.export.onnx import export_onnx
from treekit.export.readable import explain_unreadable
from treekit.model.builder import build_tree, is_missing, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.rules.compare import compare_predictions
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.row_converter import RowConverter
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor

VOCABULARIES = {
    "words of a file": ("FALSE", "TRUE"),
    "words of Python": ("False", "True"),
    "two words for true": ("no", "True", "true"),
    "three words for true": ("no", "TRUE", "true", "tRue"),
    "bools beside numbers": ("1", "TRUE", "0"),
    "whole numbers": ("10", "3", "4", "-1"),
    "numbers with points": ("3.0", "4", "2.50"),
    "one number twice": ("3.0", "3", "2.5"),
    "one number twice, neither plain": ("3.0", "3.00", "4"),
    "numbers beside text": ("3", "a", "2.5", "-1.0", "v1"),
    "digits that are names": ("007", "3", "012"),
    "blanks and case": ("a", "A", " a", "a "),
    "dates": ("2024-01-31", "2024-02-01", "31.01.2024"),
    "marks": ("NA", "TRUE", "?"),
    "codes": ("0", "1", "2"),
    "prices": ("250.10", "250.1", "3.00"),
    "long numbers": ("12345678901234567890", "12345678901234567891"),
    "none": (),
}
CELLS = [
    *(True, False, "TRUE", "FALSE", "True", "False", "true", "false", " TRUE", "tRUE", "T", "-0"),
    *(3, 3.0, "3", "3.0", "3.00", " 3", "+3", "03", "3e0", 4, "4.0", -1, "-1", "-1.0"),
    *(2.5, "2.5", "2.50", ".25e1", 7, "7", "007", "7.0", 12, "012", 1, "1", "1.0", 0, "0", -0.0),
    *("a", "A", " a", "a ", "  a", "a.0", "v1", "v1.0", "2024-01-31", " 2024-01-31"),
    *(
        "2024-01-31 00:00:00",
        "31.01.2024",
        "NA",
        " NA ",
        "?",
        None,
        "yes",
        "1_0",
        "٣",
        "1e400",
        ".0",
        "-",
        "nan",
    ),
    *("00", "-3.0", "10.0", "-0.0", "0.0", "2.0", 2, "250.1", 250.1, "250.10", "٣.0"),
    *("12345678901234567890", "12345678901234567890.0", "\x1fNA\u3000", "\ufeffNA", "NA\u200b"),
]


def level_model(levels: tuple[str, ...], **policies: Any) -> Model:
    """A model whose answer is the position of the level of its only column, or -1."""
    node = leaf(-1.0)
    for code, level in enumerate(levels):
        node = subset("c", [level], leaf(float(code)), node, missing=1)
    schema = Schema((Column("c", "nominal", levels),), task="regression")
    return make_model(schema, [build_tree(node, schema)], **policies)


def wide_model() -> Model:
    """A model with a column for each vocabulary, which refuses unseen categories."""
    columns = tuple(Column(name, "nominal", levels) for name, levels in VOCABULARIES.items())
    schema = Schema(columns, task="regression")
    return make_model(schema, [build_tree(leaf(0.0), schema)], unknown="error")


def expected(cells: list[Any], levels: tuple[str, ...]) -> list[float]:
    found = [level_of(cell, levels) for cell in cells]
    return [-1.0 if code is None else float(code) for code in found]


TEXTS = [cell for cell in CELLS if isinstance(cell, str)]
QUESTIONS = [(f, text) for f in range(len(VOCABULARIES)) for text in TEXTS]
STATES = [state_of(text, levels) for levels in VOCABULARIES.values() for text in TEXTS]


def text_of(cell: Any) -> str:
    """The cell in a file."""
    return "" if cell is None else str(cell)


@pytest.fixture(params=VOCABULARIES)
def levels(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return VOCABULARIES[request.param]


@pytest.mark.parametrize(
    "table",
    [
        lambda cell: {"c": [cell]},
        lambda cell: [{"c": cell}],
        lambda cell: [[cell]],
        lambda cell: np.array([[cell]], dtype=object),
        lambda cell: pd.DataFrame({"c": [cell]}),
        lambda cell: pd.DataFrame({"c": [cell]}).convert_dtypes(),
        lambda cell: pd.DataFrame({"c": pd.array([cell], pd.ArrowDtype(pa.scalar(cell).type))}),
        lambda cell: pd.DataFrame({"c": pd.Categorical([cell])}),
        lambda cell: pl.DataFrame({"c": [cell]}),
        lambda cell: (
            pl.DataFrame({"c": pl.Series([text_of(cell)]).cast(pl.Categorical)})
            if isinstance(cell, str)
            else pl.DataFrame({"c": [cell]})
        ),
        lambda cell: pa.table({"c": [cell]}),
        lambda cell: pa.table({"c": pa.array([cell]).dictionary_encode()}),
    ],
    ids=[
        *("dict", "mappings", "lists", "array", "pandas", "nullable", "pyarrow", "categories"),
        *("polars", "polars categories", "arrow", "arrow dictionary"),
    ],
)
def test_category_cells_match_in_tables_of_any_type(levels: tuple[str, ...], table: Any) -> None:
    model = level_model(levels)
    said = [float(model.predict(table(cell))[0]) for cell in CELLS]
    assert said == expected(CELLS, levels)


def test_category_cells_match_in_text_columns_of_any_library(
    levels: tuple[str, ...], tmp_path: Path
) -> None:
    model, right = level_model(levels), expected(TEXTS, levels)
    texts = pa.table({"c": TEXTS})
    pq.write_table(texts, tmp_path / "rows.parquet")
    feather.write_feather(texts, tmp_path / "rows.arrow")
    frames = [
        *(pd.DataFrame({"c": TEXTS}), pd.DataFrame({"c": pd.array(TEXTS, "string")})),
        *(texts.to_pandas(types_mapper=pd.ArrowDtype), texts.to_pandas().astype("category")),
        *(pl.DataFrame(texts), texts, tmp_path / "rows.parquet", tmp_path / "rows.arrow"),
    ]
    for frame in frames:
        assert model.predict(frame).tolist() == right


@pytest.mark.parametrize("face", ["tables", "requests", "tensors", "python", "onnx"])
def test_missing_value_mark_is_missing_and_other_text_is_unseen(
    levels: tuple[str, ...], face: str
) -> None:
    ask, states = STRICT_FACES[face](level_model(levels, unknown="error")), []
    for text in TEXTS:
        try:
            found = ask(text)
        except REFUSALS:
            states.append("unseen")
        else:
            states.append("missing" if found < 0 else found)
    assert states == [state_of(text, levels) for text in TEXTS]


def ask_converter(model: Model) -> Any:
    def ask(text: str) -> float:
        (code,) = RowConverter(model, "m").convert_rows([{"c": text}])[0].tolist()
        return -1.0 if math.isnan(code) else code

    return ask


def ask_tensors(model: Model) -> Any:
    def ask(text: str) -> float:
        tensor = Tensor("c", "BYTES", np.array([text], dtype=object))
        (code,) = Served("m", "1", "", model).parse_inputs([tensor])[0].tolist()
        return -1.0 if math.isnan(code) else code

    return ask


def ask_python(model: Model) -> Any:
    predict = import_python(model, form="full")["predict"]
    return lambda text: predict({"c": text})


def ask_onnx(model: Model) -> Any:
    files = export_onnx(model, "m", inputs="columns")
    session = ort.InferenceSession(files["m.onnx"])

    def ask(text: str) -> float:
        (value,) = session.run(None, {"c": np.array([[text]], dtype=object)})
        return float(np.ravel(value)[0])

    return ask


STRICT_FACES = {
    "tables": lambda model: lambda text: float(model.predict({"c": [text]})[0]),
    "requests": ask_converter,
    "tensors": ask_tensors,
    "python": ask_python,
    "onnx": ask_onnx,
}
REFUSALS = (ValueError, DataError, InvalidRequestError, InvalidArgument, Fail)


def test_category_cells_match_in_csv_rows(levels: tuple[str, ...], tmp_path: Path) -> None:
    model, path, out = level_model(levels), tmp_path / "rows.csv", tmp_path / "out.csv"
    texts = [text_of(cell) for cell in CELLS]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["c"], *([text] for text in texts)])
    assert model.predict(path).tolist() == expected(texts, levels)
    assert import_python(model, form="full")["main"]([str(path), "-o", str(out)]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        assert [float(row[0]) for row in list(csv.reader(file))[1:]] == expected(texts, levels)


def test_category_cells_match_in_requests_and_explained_rows(levels: tuple[str, ...]) -> None:
    model = level_model(levels)
    matrix = RowConverter(model, "m").convert_rows([{"c": cell} for cell in CELLS])
    explained = [read_row(model, {"c": cell}).codes[0] for cell in CELLS]
    codes = [math.nan if code < 0 else code for code in expected(CELLS, levels)]
    np.testing.assert_array_equal(matrix[:, 0], codes)
    np.testing.assert_array_equal(explained, codes)
    texts = [cell for cell in CELLS if isinstance(cell, str)]
    codes = [math.nan if code < 0 else code for code in expected(texts, levels)]
    for name in ("input", "c"):
        tensor = Tensor(name, "BYTES", np.array([[text] for text in texts], dtype=object))
        matrix = Served("m", "1", "", model).parse_inputs([tensor])
        np.testing.assert_array_equal(matrix[:, 0], codes)


def test_category_cells_match_in_onnx_columns(levels: tuple[str, ...]) -> None:
    ask = ask_onnx(level_model(levels))
    assert list(map(ask, TEXTS)) == expected(TEXTS, levels)


def test_category_cells_match_in_c(tmp_path: Path) -> None:
    program = compile_c(wide_model(), tmp_path)
    code = program.function("level_code", ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
    is_mark = program.function("is_missing_text", ctypes.c_int, ctypes.c_char_p)
    found = [(code(f, text.encode()), is_mark(text.encode())) for f, text in QUESTIONS]
    assert list(map(name_state, found)) == STATES


def name_state(found: tuple[float, float]) -> Any:
    """The state of a text by its code, -1 if it is no category, and whether it is a mark."""
    code, is_mark = found
    return code if code >= 0 else "missing" if is_mark else "unseen"


PROGRAMS = {
    "javascript": (
        ("m.mjs", "main.mjs"),
        """\
import * as m from "./m.mjs";
import { readFileSync } from "node:fs";
for (const line of readFileSync(0, "utf8").trim().split("\\n")) {
  const [feature, hex] = line.split(" ");
  const code = m.levelCode(Number(feature), Buffer.from(hex ?? "", "hex").toString("utf8"));
  console.log(Number.isNaN(code) ? "-1 1" : `${code} 0`);
}
""",
        [["node", "main.mjs"]],
    ),
    "rust": (
        ("m.rs", "main.rs"),
        """\
mod m;
fn main() {
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (feature, hex) = line.split_once(' ').unwrap();
        let bytes = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16));
        let text = String::from_utf8(bytes.map(|byte| byte.unwrap()).collect()).unwrap();
        let code = m::level_code(feature.parse().unwrap(), &text);
        let is_mark = code.is_some_and(f64::is_nan);
        println!("{} {}", code.filter(|x| !x.is_nan()).unwrap_or(-1.0), i32::from(is_mark));
    }
}
""",
        [["rustc", "--edition", "2021", "-D", "warnings", "main.rs"], ["./main"]],
    ),
    "java": (
        ("M.java", "Main.java"),
        """\
public class Main {
    public static void main(String[] arguments) throws java.io.IOException {
        java.io.BufferedReader in =
            new java.io.BufferedReader(new java.io.InputStreamReader(System.in, "US-ASCII"));
        String line;
        while ((line = in.readLine()) != null) {
            int at = line.indexOf(' ');
            String hex = line.substring(at + 1);
            byte[] bytes = new byte[hex.length() / 2];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
            }
            String text = new String(bytes, "UTF-8");
            int code = M.levelCode(Integer.parseInt(line.substring(0, at)), text);
            System.out.println(code + (M.isMissing(text) ? " 1" : " 0"));
        }
    }
}
""",
        [["javac", "Main.java", "M.java"], ["java", "Main"]],
    ),
    "go": (
        ("m/m.go", "main.go"),
        """\
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"x/m"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		cells := strings.SplitN(lines.Text(), " ", 2)
		feature, _ := strconv.Atoi(cells[0])
		text, _ := hex.DecodeString(cells[1])
		isMark := 0
		if m.IsMissing(string(text)) {
			isMark = 1
		}
		fmt.Println(m.LevelCode(feature, string(text)), isMark)
	}
}
""",
        [["go", "mod", "init", "x"], ["go", "build", "-o", "main", "."], ["./main"]],
    ),
}
"""Where a model goes, and a program that prints the code of each text, and whether it is a mark."""


@pytest.mark.matrix
@pytest.mark.parametrize("language", PROGRAMS)
def test_category_cells_match_in_other_languages(language: str, tmp_path: Path) -> None:
    (place, main), program, commands = PROGRAMS[language]
    need(commands[0][0])
    (tmp_path / place).parent.mkdir(exist_ok=True)
    treekit.export(wide_model(), language, tmp_path / place, form="full")
    (tmp_path / main).write_text(program, encoding="utf-8")
    lines = "\n".join(f"{f} {text.encode().hex()}" for f, text in QUESTIONS) + "\n"
    for command in commands:
        done = subprocess.run(
            command, cwd=tmp_path, input=lines, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    found = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    assert list(map(name_state, found)) == STATES


def test_category_cells_match_in_exported_python(levels: tuple[str, ...]) -> None:
    predict = import_python(level_model(levels), form="full")["predict"]
    cells = [*CELLS, np.bool_(True), np.int8(3), np.float32(2.5), Decimal("2.50"), Decimal("3.0")]
    assert [predict({"c": cell}) for cell in cells] == expected(cells, levels)


def test_category_cells_match_in_readable_python(levels: tuple[str, ...]) -> None:
    model = level_model(levels)
    module = import_python(model, form="auto")
    assert ("FEATURES" in module) == bool(explain_unreadable(model, lower_unless_fractional(model)))
    assert [module["predict"]({"c": cell}) for cell in CELLS] == expected(CELLS, levels)


MAIN = """\
import * as m from "./m.mjs";
import { readFileSync } from "node:fs";
const cells = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cells.map((cell) => m.predict({ c: cell }))));
console.log(JSON.stringify(cells.map((cell) => m.levelCode(0, cell))));
"""


@pytest.mark.matrix
def test_category_cells_match_in_exported_javascript(
    levels: tuple[str, ...], tmp_path: Path
) -> None:
    need("node")
    treekit.export(level_model(levels), "javascript", tmp_path / "m.mjs", form="full")
    (tmp_path / "main.mjs").write_text(MAIN, encoding="utf-8")
    done = subprocess.run(
        ["node", "main.mjs"],
        cwd=tmp_path,
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert json.loads(line) == expected(CELLS, levels)


WORDS = st.one_of(
    st.sampled_from(["TRUE", "True", "true", "FALSE", "False", "false", "1", "3.0", "NA", "007"]),
    st.text("013.+-eE x", max_size=5),
    st.integers(-20, 20).map(str),
    st.floats(-9, 9).map(lambda x: repr(round(x, 1))),
)
ANY_CELL = st.one_of(WORDS, st.booleans(), st.integers(-20, 20), st.floats(-9, 9))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(WORDS, unique=True, max_size=6), st.lists(ANY_CELL, min_size=1, max_size=6))
def test_any_cell_of_any_vocabulary_matches_in_every_reader(
    vocabulary: list[str], cells: list[Any]
) -> None:
    levels = tuple(vocabulary)
    model, cells = level_model(levels), [*cells, *levels]
    wanted = expected(cells, levels)
    predict = import_python(model, form="full")["predict"]
    assert [predict([cell]) for cell in cells] == wanted
    assert [float(model.predict({"c": [cell]})[0]) for cell in cells] == wanted
    matrix = RowConverter(model, "m").convert_rows([{"c": cell} for cell in cells])
    assert np.where(np.isnan(matrix[:, 0]), -1, matrix[:, 0]).tolist() == wanted


# ------------------------------------------------------------------ numbers

NUMBERS = [
    *("1.5", " 2 ", "1e1", *NUMBER_MARKS, " N/A\u3000", "1.5x", "n/A", "1_0", "٣", ""),
    *("1,5", "1.500", "1.234,5", ",5", "1.5,0", "1.50.000", "1.50", "."),
]


def number_model(**more: Any) -> Model:
    """A model with a numeric and a nominal column, whose answer tells 1.5, others and missing."""
    schema = Schema((Column("x"), Column("c", "nominal", ("N/A", "a"))), task="regression", **more)
    root = is_missing("x", leaf(-1.0), threshold("x", 1.75, leaf(0.0), leaf(1.0)))
    return make_model(schema, [build_tree(root, schema)])


def answer_number(text: str, marks: tuple[str, ...]) -> float | None:
    """The answer of `number_model`; None for text that is no number."""
    numbers = {"1.5": 0.0, "1.500": 0.0, "1.50": 0.0, " 2 ": 1.0, "1e1": 1.0}
    return -1.0 if text.strip() in marks else numbers.get(text)


def answer_notation(text: str, marks: tuple[str, ...]) -> float | None:
    """The same for numbers such as 1.234,5."""
    numbers = {" 2 ": 1.0, "1e1": 1.0, "1,5": 0.0, "1.500": 1.0, "1.234,5": 1.0, ",5": 0.0}
    numbers["1.50.000"] = 1.0  # groups of India
    return -1.0 if text.strip() in marks else numbers.get(text)


@pytest.mark.parametrize(
    "more",
    [{}, {"missing_marks": ("n/A", "x")}, {"notation": Notation(",", ".")}],
    ids=["usual marks", "other marks", "notation"],
)
@pytest.mark.parametrize("face", ["python", "script", "requests", "tensors", "table", "file"])
def test_missing_value_marks_in_numeric_columns_match_in_every_reader(
    face: str, more: dict[str, Any], tmp_path: Path
) -> None:
    model = number_model(**more)
    converter, module = RowConverter(model, "m"), import_python(model, form="full")
    served, path = Served("m", "1", "", model), tmp_path / "rows.csv"

    def predict_tensor(text: str) -> float:
        tensor = Tensor("input", "BYTES", np.array([[text, "a"]], dtype=object))
        return float(model.scorer()(served.parse_inputs([tensor])[0]))

    def predict_file(text: str) -> float:
        path.write_text(f'x,c\n"{text}",a\n', encoding="utf-8")
        return float(model.predict(path)[0])

    faces = {
        "tensors": predict_tensor,
        "table": lambda text: model.predict({"x": [text], "c": ["a"]}),
        "file": predict_file,
        "python": lambda text: module["predict"]([text, "a"]),
        "script": lambda text: module["predict"]([module["_typed"]("x", text), "a"]),
        "requests": lambda text: model.scorer()(converter.convert_rows([{"x": text, "c": "a"}])[0]),
    }
    for text in NUMBERS:
        try:
            found = float(np.ravel(faces[face](text))[0])
        except (ValueError, DataError, InvalidRequestError):
            found = None
        if not (text.lower() in ("nan", "-nan") and found == -1.0):  # as numbers
            plain = model.schema.text_format.is_plain
            answer = answer_number if plain else answer_notation
            assert found == answer(text, model.schema.number_marks), text


# ------------------------------------------------------------------ training

WEATHER = """\
outlook,temperature,humidity,windy,play
sunny,hot,high,FALSE,no
sunny,hot,high,TRUE,no
overcast,hot,high,FALSE,yes
rainy,mild,high,FALSE,yes
rainy,cool,normal,FALSE,yes
rainy,cool,normal,TRUE,no
overcast,cool,normal,TRUE,yes
sunny,mild,high,FALSE,no
sunny,cool,normal,FALSE,yes
rainy,mild,normal,FALSE,yes
sunny,mild,normal,TRUE,yes
overcast,mild,high,TRUE,yes
overcast,hot,normal,FALSE,yes
rainy,mild,high,TRUE,no
"""


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    path = tmp_path / "weather.csv"
    path.write_text(WEATHER, encoding="utf-8")
    return path


@pytest.mark.parametrize("windy", ["TRUE", True, "True", "true", np.bool_(True)])
def test_bool_category_is_found_by_any_spelling(weather: Path, windy: Any) -> None:
    model = treekit.train(weather, "play", criterion="entropy", seed=0)
    row = {"outlook": "rainy", "temperature": "mild", "humidity": "high", "windy": windy}
    assert model.predict_proba([row]).tolist() == [[1.0, 0.0]]
    assert import_python(model)["predict_proba"](row) == [1.0, 0.0]


def test_rules_show_bools_as_spelled_in_the_file(weather: Path) -> None:
    model = treekit.train(weather, "play", criterion="entropy", seed=0)
    column = model.schema.columns[3]
    assert column.levels == ("FALSE", "TRUE")
    text = str(model.rules())
    assert "TRUE" in text
    assert "True" not in text


@pytest.mark.parametrize(
    ("cells", "levels"),
    [
        (["TRUE", "FALSE", "TRUE"], ("FALSE", "TRUE")),
        (["true", "", "false"], ("false", "true")),
        (["True", "False", "?"], ("False", "True")),
        (["TRUE", "FALSE", "true"], ("False", "True")),
        ([" TRUE", "TRUE", "FALSE "], (" TRUE", "FALSE ", "TRUE")),
        (["TRUE", "false", "TRUE"], ("false", "TRUE")),
        (["TRUE", "TRUE", "NA"], ("TRUE",)),
        (["TRUE", "yes", "FALSE"], ("FALSE", "TRUE", "yes")),
    ],
)
def test_bool_categories_of_a_file_keep_their_spelling(
    cells: list[str], levels: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("c,t\n" + "".join(f"{cell},{at % 2}\n" for at, cell in enumerate(cells)))
    model = treekit.train(path, "t", max_depth=1)
    assert model.schema.columns[0].levels == levels


@pytest.mark.parametrize("trained_on", ["bools", "texts", "file"])
def test_models_of_a_file_and_its_dataframes_predict_equally_for_each(
    weather: Path, trained_on: str
) -> None:
    bools, texts = pd.read_csv(weather), pd.read_csv(weather, dtype=str)
    assert bools["windy"].dtype == bool
    sources = {"bools": bools, "texts": texts, "file": weather}
    model = treekit.train(sources[trained_on], "play", criterion="entropy", seed=0)
    asked = [bools, texts, weather, texts.assign(windy=texts["windy"].str.lower())]
    assert [model.predict(rows).tolist() for rows in asked] == [bools["play"].tolist()] * 4


def test_estimator_fitted_to_text_predicts_bools(weather: Path) -> None:
    texts = pd.read_csv(weather, dtype=str).drop(columns="play")
    bools = pd.read_csv(weather).drop(columns="play")
    play = pd.read_csv(weather)["play"]
    tree = DecisionTreeClassifier(criterion="entropy").fit(texts, play)
    for rows in (texts, bools, texts.assign(windy=texts["windy"].str.lower())):
        assert tree.predict(rows).tolist() == play.tolist()


def test_class_label_is_found_by_any_spelling() -> None:
    table = {"a": [0, 0, 1, 1], "t": ["FALSE", "FALSE", "TRUE", "TRUE"]}
    for weights in ({"TRUE": 2}, {True: 2}, {"true": 2}):
        model = treekit.train(table, "t", class_weight=weights, classes=[True, False])
        assert model.schema.classes == ("TRUE", "FALSE")


def test_true_labels_are_found_by_any_spelling(weather: Path) -> None:
    model = treekit.train(weather, "windy", criterion="entropy", seed=0)
    assert model.schema.classes == (False, True)
    texts = pd.read_csv(weather, dtype=str)
    others = (texts, texts.assign(windy=texts["windy"].str.lower()), pd.read_csv(weather))
    (known,) = compute_scores(model, read_table(weather))
    (change,) = compare_predictions(model, model, weather)
    assert known[1] == change.scores.before > 0.5
    for words in others:
        assert compute_scores(model, read_table(words)) == [known]
        assert compare_predictions(model, model, words)[0].scores == change.scores


def test_bools_in_onnx_map_to_the_spelling_of_the_file() -> None:
    from treekit.interop.skl2onnx import _map_level_numbers

    column = Column("c", "nominal", ("TRUE", "FALSE", "3.0"))
    assert _map_level_numbers(column, truth=True) == {0.0: 1, 1.0: 0, 3.0: 2}


@pytest.mark.parametrize("cell", [dt.date(2024, 1, 31), dt.datetime(2024, 1, 31)])
def test_dates_that_are_not_text_are_refused(cell: Any) -> None:
    model = level_model(VOCABULARIES["dates"])
    for table in ({"c": [cell]}, pd.DataFrame({"c": [cell]}), pa.table({"c": [cell]})):
        with pytest.raises(DataError, match="'c' holds dates"):
            model.predict(table)
