"""scikit-learn's trees in files of skops are read without skops; no code of a file is run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from treekit_importers.skops import _read_array as stored_array
from treekit_importers.skops import read_skops

import treekit
from tests.foreign import FOLDER
from treekit.errors import ModelError, ModelFileError
from treekit.testing import check_importer

CASES = ("forest", "boosted", "histogram", "bag")


def path_of(case: str) -> Path:
    return FOLDER / f"sklearn_{case}.skops"


@pytest.mark.parametrize("case", CASES)
def test_imported_file_predicts_as_its_estimator(case: str) -> None:
    told = json.loads((FOLDER / f"sklearn_{case}.answers").read_text())
    model = treekit.read_model(path_of(case))
    numbers = model.schema.task == "regression"
    ours = model.predict(told["rows"]) if numbers else model.predict_proba(told["rows"])
    bound = model.n_trees / 2**24 if case == "bag" else 1e-12
    np.testing.assert_allclose(ours, told["predictions"], rtol=0, atol=bound)
    assert model.provenance["scikit-learn"].startswith("1.")


def test_settings_and_categories_equal_those_of_the_estimator() -> None:
    model = read_skops(path_of("histogram"))
    assert model.settings["max_leaf_nodes"] == 6
    assert model.schema.columns[3].levels == ("*/", "clay", "loam", "sand", "silt")
    raw = read_skops(path_of("histogram"), answer="margins")
    assert (raw.schema.task, len(raw.schema.outputs)) == ("regression", 3)


@pytest.mark.system
def test_reading_a_file_imports_neither_skops_nor_sklearn_ensemble() -> None:
    code = (
        "import sys; from pathlib import Path; import treekit;"
        f"treekit.read_model(Path({str(path_of('forest'))!r}));"
        "assert not {'skops', 'sklearn.ensemble'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def rewritten(
    folder: Path, change: Callable[[dict[str, bytes]], None], compression: int = 0
) -> Path:
    """A file whose entries some function changed."""
    with zipfile.ZipFile(path_of("forest")) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    path = folder / "model.skops"
    path.write_bytes(content.getvalue())
    return path


def in_schema(old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    def change(entries: dict[str, bytes]) -> None:
        text = entries["schema.json"].decode()
        assert old in text
        entries["schema.json"] = text.replace(old, new).encode()

    return change


def in_nodes(field: str, at: int, value: float) -> Callable[[dict[str, bytes]], None]:
    """Another entry in the nodes of each tree."""

    def change(entries: dict[str, bytes]) -> None:
        for name, data in entries.items():
            if b"left_child" in data[:300]:
                nodes = np.load(io.BytesIO(data)).copy()
                nodes[field][at] = value
                stream = io.BytesIO()
                np.save(stream, nodes)
                entries[name] = stream.getvalue()

    return change


def in_headers(old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    """Something else in each array's header, of the same length."""

    def change(entries: dict[str, bytes]) -> None:
        for name, data in entries.items():
            header, line, rest = data.partition(b"\n")
            if name.endswith(".npy") and old in header:
                other = header.replace(old, new).rstrip(b" ")
                entries[name] = other.ljust(len(header)) + line + rest

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_schema('"RandomForestRegressor"', '"Popen"'), "contains a .*Popen; treekit reads"),
        (in_schema('"sklearn.ensemble._forest"', '"os"'), "contains a os.RandomForestRegressor"),
        (in_schema('"protocol": 2', '"protocol": 9'), "protocol 9"),
        (in_schema('"TreeNode"', '"FunctionNode"'), "damaged"),
        (in_schema('"JsonNode"', '"CodeNode"'), "damaged"),
        (in_schema('"estimators_"', '"estimators"'), "is not fitted"),
        (lambda entries: entries.pop("schema.json"), "no entry 'schema.json'"),
        (lambda entries: entries.update({"schema.json": b"[" * 10**5}), "damaged: schema.json"),
        (in_nodes("left_child", 0, 0), "damaged"),
        (in_nodes("right_child", 0, 10**9), "damaged"),
        (in_nodes("feature", 0, 99), "a split uses none of the 3 columns"),
        (in_nodes("threshold", 0, np.nan), "a threshold is NaN"),
        (in_headers(b"'shape': (", b"'shape': (9"), "does not fit shape|not an array"),
        (in_headers(b"'descr': '<f8'", b"'descr': '|O8'"), "not an array of plain numbers"),
        (in_headers(b"'descr': '<f8'", b"'descr': exit()"), "not an array of plain numbers"),
    ],
)
def test_malicious_file_is_refused(
    change: Callable[[dict[str, bytes]], None], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ModelError, ModelFileError), match=message):
        treekit.read_model(rewritten(tmp_path, change))


def test_compressed_file_is_refused(tmp_path: Path) -> None:
    path = rewritten(tmp_path, lambda entries: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        treekit.read_model(path)


def test_importer_passes_the_contract_checks() -> None:
    check_importer("skops", sources=[path_of("bag"), path_of("histogram")])


def test_text_of_invalid_characters_is_refused():
    texts = np.array(["yes", "no"])
    content = io.BytesIO()
    np.save(content, texts)
    whole = content.getvalue()
    assert stored_array({"a.npy": whole}, "a.npy").tolist() == ["yes", "no"]
    beyond = (sys.maxunicode + 1).to_bytes(4, "little")
    with pytest.raises(ModelFileError, match="contains invalid text"):
        stored_array({"a.npy": whole[:-4] + beyond}, "a.npy")
