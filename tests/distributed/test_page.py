"""The examples of docs/distributed.md run as shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import treekit
from tests.runtimes import need
from treekit.cli import main

pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text("utf-8")


def find_block(mark: str) -> str:
    """Return the code of the first block that begins with a mark."""
    block = re.search(rf"^```{mark}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


def run_command(line: str) -> str:
    """Run a command of treekit."""
    result = CliRunner().invoke(main, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Write the page's table in a folder of its own, and return it."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(find_block("python"), names)
    frame: pd.DataFrame = names["table"]
    return frame


@pytest.fixture
def model(table: pd.DataFrame) -> treekit.Model:
    """Write the model that the page's first command trains, and return it."""
    ordered = pd.concat([table[k::3] for k in range(3)])
    model = treekit.train(
        ordered, "surgical_lesion", ignore=["id"], ensemble="forest", trees=20, seed=0
    )
    model.save("m.treekit")
    return model


def test_quickstart_of_the_page_runs_as_shown(table: pd.DataFrame, model: treekit.Model) -> None:
    expected = Path("m.treekit").read_bytes()
    Path("m.treekit").unlink()
    for line in find_block("sh").splitlines():
        printed = run_command(line)
    assert Path("m.treekit").read_bytes() == expected
    assert "equal" in printed
    said = pd.concat([pd.read_parquet(path) for path in Path("predictions").iterdir()]).sort_index()
    np.testing.assert_array_equal(said["surgical_lesion"], model.predict(table))


def test_spark_predicts_with_a_model_file(
    table: pd.DataFrame, model: treekit.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("java", "pyspark")
    from pyspark.sql import SparkSession

    root = str(Path(treekit.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", root, prepend=":")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    names: dict[str, Any] = {"spark": spark}
    try:
        exec(find_block("python spark"), names)
        said = names["predictions"].toPandas().sort_values("id")
    finally:
        spark.stop()
    assert len(said) == len(table)
    np.testing.assert_array_equal(said["prediction"], model.predict(table))


def test_error_messages_quoted_on_the_page_occur_in_the_code() -> None:
    package = Path(treekit.__file__).parent
    code = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    code = re.sub(r'"\n\s*f?"', "", code)
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert len(rows) > 8
    for text in re.findall(r"`(.*?)`", " ".join(rows)):
        # Numbers and names vary.
        for part in re.split(r"\.{3}|\d[\d.]*(?: GB)?|'.*?'|tcp://\S*|has (?=numba|check)", text):
            words = part.strip(" ,/")
            assert words in code or words in ("worker", "numba"), words
