"""tritonclient over HTTP against a running server: responses equal the model."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving import models, numbers, on_a_port, people, save_models, service_of
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import DATATYPES, Tensor, TensorSpec
from treekit.serve.scheduling import Service

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # gevent's and its own, on import
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
    from tritonclient.utils import InferenceServerException, np_to_triton_dtype

pytestmark = pytest.mark.matrix

ROWS = 23


class Client(InferenceServerClient):
    """One that is closed by who opened it."""

    def __del__(self) -> None:
        """Nothing: garbage may be collected in the server's thread, where gevent refuses."""


@pytest.fixture(scope="module")
def serve_wire_triton_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client(serve_wire_triton_folder: Path) -> Iterator[InferenceServerClient]:
    with on_a_port(service_of(serve_wire_triton_folder)) as address, client_at(address) as found:
        yield found


@contextlib.contextmanager
def client_at(address: str) -> Iterator[InferenceServerClient]:
    found = Client(address)
    try:
        yield found
    finally:
        found.close()


def given(name: str, cells: np.ndarray, binary: bool) -> InferInput:
    made = InferInput(name, list(cells.shape), np_to_triton_dtype(cells.dtype))
    return made.set_data_from_numpy(cells, binary_data=binary)


def one_tensor(columns: dict[str, np.ndarray], dtype: Any = np.float32) -> np.ndarray:
    return np.column_stack([column[:ROWS] for column in columns.values()]).astype(dtype)


def same(got: np.ndarray, wanted: Any) -> None:
    """Equal in shape and, to the bit, in value; texts come as bytes."""
    wanted = np.asarray(wanted)
    if wanted.dtype.kind in "OU":
        assert [cell if isinstance(cell, str) else cell.decode() for cell in got.ravel()] == list(
            wanted.ravel()
        )
        return
    assert got.shape == wanted.shape
    assert got.astype(wanted.dtype).tobytes() == wanted.tobytes()
    np.testing.assert_array_equal(got, wanted)


# ------------------------------------------------------------------------ metadata


def test_server_metadata_state_name_and_version(client: InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata["name"] == "treekit"
    assert {"binary_tensor_data", "model_repository"} <= set(metadata["extensions"])


def test_metadata_state_inputs_and_outputs(client: InferenceServerClient) -> None:
    found = client.get_model_metadata("texts")
    assert found["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    default = {out["name"]: out["parameters"]["default"] for out in found["outputs"]}
    assert {"label": True, "probabilities": True, "leaf": False}.items() <= default.items()
    assert "x0 FP32 [-1], x1 FP32 [-1]" in found["parameters"]["other_inputs"]
    assert found["parameters"]["sha256"].startswith(found["versions"][0])
    mixed = client.get_model_metadata("mixed")
    assert [spec["datatype"] for spec in mixed["inputs"]] == ["FP32", "BYTES", "BYTES"]
    assert "input FP32 [-1, 3] (a category is its pos" in mixed["parameters"]["other_inputs"]
    assert "categor" not in found["parameters"]["other_inputs"]


def test_metadata_and_readiness_have_versions(client: InferenceServerClient) -> None:
    (version,) = client.get_model_metadata("texts")["versions"]
    assert client.get_model_metadata("texts", version) == client.get_model_metadata("texts")
    assert client.is_model_ready("texts")
    assert client.is_model_ready("texts", version)
    assert not client.is_model_ready("texts", "7")
    assert not client.is_model_ready("nobody")


# ------------------------------------------------------------------------- answers


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("name", ["texts", "ints", "floats", "bools", "wide"])
def test_labels_of_every_type_equal_the_model(
    client: InferenceServerClient, name: str, binary_in: bool, binary_out: bool
) -> None:
    model = models()[name]
    rows = one_tensor(numbers(), model.schema.dtype)
    outputs = [
        InferRequestedOutput(output, binary_data=binary_out)
        for output in ("probabilities", "label")
    ]
    found = client.infer(name, [given("input", rows, binary_in)], outputs=outputs)
    same(found.as_numpy("label"), model.predict(rows))
    same(found.as_numpy("probabilities"), model.predict_proba(rows))
    assert [output["name"] for output in found.get_response()["outputs"]] == [
        "probabilities",
        "label",
    ]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["value", "values"])
def test_numbers_equal_the_model(client: InferenceServerClient, name: str, binary: bool) -> None:
    rows = one_tensor(numbers())
    outputs = [InferRequestedOutput("value", binary_data=binary)]
    found = client.infer(name, [given("input", rows, binary)], outputs=outputs)
    same(found.as_numpy("value"), models()[name].predict(rows))


def test_each_of_several_targets_has_its_outputs(client: InferenceServerClient) -> None:
    model = models()["classes"]
    rows = one_tensor(numbers())
    found = client.infer("classes", [given("input", rows, True)])
    labels, shares = model.predict(rows), model.predict_proba(rows)
    for place in range(2):
        same(found.as_numpy(f"label_{place}"), labels[:, place].astype(int))
        same(found.as_numpy(f"probabilities_{place}"), shares[place])


@pytest.mark.parametrize("binary", [True, False])
def test_one_input_per_column_accepts_texts_and_missing_values(
    client: InferenceServerClient, binary: bool
) -> None:
    model = models()["mixed"]
    known = {name: column[:ROWS].copy() for name, column in people().items()}
    known["age"] = np.nan_to_num(known["age"], nan=33.5).astype(np.float32)
    known["town"][[town is None for town in known["town"]]] = "nowhere seen"
    found = client.infer("mixed", [given(name, known[name], binary) for name in known])
    same(found.as_numpy("label"), model.predict(known))
    same(found.as_numpy("probabilities"), model.predict_proba(known))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_input_is_missing_and_infinity_is_a_number(
    client: InferenceServerClient, binary: bool, dtype: Any
) -> None:
    rows = one_tensor(numbers(), dtype)
    rows[::3, 0] = np.nan
    rows[1::3, 1] = np.inf
    rows[2::3, 2] = -np.inf
    found = client.infer("texts", [given("input", rows, binary)])
    same(found.as_numpy("label"), models()["texts"].predict(rows))
    same(found.as_numpy("probabilities"), models()["texts"].predict_proba(rows))


def test_single_text_input_of_all_columns_is_read_as_a_csv_file(
    client: InferenceServerClient,
) -> None:
    texts = np.array([["38.5", "Ulm", "True"], ["", "Bonn", ""]], dtype=object)
    rows = {
        "age": np.array([38.5, np.nan]),
        "town": np.array(["Ulm", "Bonn"], dtype=object),
        "member": np.array(["True", None], dtype=object),
    }
    found = client.infer("mixed", [given("input", texts, True)])
    same(found.as_numpy("probabilities"), models()["mixed"].predict_proba(rows))


NUMBERS = [name for name in DATATYPES if name not in ("BOOL", "BYTES")]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_numeric_columns_are_accepted_in_any_datatype(
    client: InferenceServerClient, datatype: str, binary: bool
) -> None:
    columns = {name: np.abs(x[:ROWS] * 2) for name, x in numbers().items()}
    columns["x1"] = columns["x1"].astype(DATATYPES[datatype])
    found = client.infer("wide", [given(name, columns[name], binary) for name in columns])
    same(found.as_numpy("probabilities"), models()["wide"].predict_proba(columns))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_requests_are_answered(client: InferenceServerClient, coding: str) -> None:
    rows = one_tensor(numbers())
    for binary in (True, False):
        found = client.infer(
            "texts",
            [given("input", rows, binary)],
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )
        same(found.as_numpy("probabilities"), models()["texts"].predict_proba(rows))


# --------------------------------------------------------- ids, versions, parameters


def test_response_returns_id_and_version(client: InferenceServerClient) -> None:
    rows = one_tensor(numbers())
    (version,) = client.get_model_metadata("texts")["versions"]
    answer = client.infer(
        "texts", [given("input", rows, True)], model_version=version, request_id="é 7"
    ).get_response()
    assert (answer["id"], answer["model_version"]) == ("é 7", version)
    assert "id" not in client.infer("texts", [given("input", rows, True)]).get_response()


def test_unknown_parameters_are_ignored(client: InferenceServerClient) -> None:
    rows = one_tensor(numbers())
    plain = client.infer("texts", [given("input", rows, True)])
    more = client.infer(
        "texts",
        [given("input", rows, True)],
        parameters={"colour": "red", "depth": 7, "sure": True},
        sequence_id=4,
        priority=1,
        timeout=10,
    )
    same(more.as_numpy("probabilities"), plain.as_numpy("probabilities"))


def test_outputs_may_be_binary_and_json_in_one_response(client: InferenceServerClient) -> None:
    rows = one_tensor(numbers())
    outputs = [
        InferRequestedOutput("leaf", binary_data=True),
        InferRequestedOutput("label", binary_data=False),
        InferRequestedOutput("probabilities", binary_data=True),
    ]
    found = client.infer("texts", [given("input", rows, False)], outputs=outputs)
    said = {output["name"]: output for output in found.get_response()["outputs"]}
    assert "data" in said["label"]
    assert said["leaf"]["parameters"] == {"binary_data_size": ROWS * 7 * 4}
    same(found.as_numpy("label"), models()["texts"].predict(rows))
    same(found.as_numpy("probabilities"), models()["texts"].predict_proba(rows))
    assert found.as_numpy("leaf").shape == (ROWS, 7)


# -------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "version", "cells", "options", "status", "words"),
    [
        ("nobody", "", np.zeros((1, 4), np.float32), {}, 404, "no model 'nobody'"),
        ("texts", "7", np.zeros((1, 4), np.float32), {}, 404, "no version '7'"),
        ("texts", "", np.zeros((1, 5), np.float32), {}, 400, r"\[1, 5\].*\[rows, 4\]"),
        (
            "texts",
            "",
            np.zeros((1, 4), np.float32),
            {"outputs": ["colour"]},
            400,
            "no output 'colour'; it has: label",
        ),
    ],
)
def test_errors_are_raised_with_message_and_status(
    client: InferenceServerClient,
    name: str,
    version: str,
    cells: np.ndarray,
    options: dict[str, Any],
    status: int,
    words: str,
) -> None:
    outputs = [InferRequestedOutput(output) for output in options.get("outputs", ())]
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.infer(
            name, [given("input", cells, True)], model_version=version, outputs=outputs or None
        )
    assert caught.value.status() == str(status)


def test_classification_and_shared_memory_are_refused(
    client: InferenceServerClient,
) -> None:
    rows = one_tensor(numbers())
    best = [InferRequestedOutput("probabilities", class_count=2)]
    with pytest.raises(InferenceServerException, match=r"'probabilities'.*'classification'"):
        client.infer("texts", [given("input", rows, True)], outputs=best)
    shared = InferInput("input", [1, 4], "FP32").set_shared_memory("region", 16)
    with pytest.raises(InferenceServerException, match=r"'input'.*'shared_memory_region'"):
        client.infer("texts", [shared])


def test_bf16_is_refused(client: InferenceServerClient) -> None:
    halves = InferInput("input", [1, 4], "BF16").set_data_from_numpy(np.zeros((1, 4), np.float32))
    with pytest.raises(InferenceServerException, match=r"'input' has datatype 'BF16'.*as FP32"):
        client.infer("texts", [halves])


# ---------------------------------------------------------------------- repository


def test_models_are_listed_but_not_changed_without_control(
    client: InferenceServerClient,
) -> None:
    found = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert found.keys() == models().keys()
    assert found["texts"]["state"] == "READY"
    for change in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="--control") as caught:
            change("texts")
        assert caught.value.status() == "403"
    assert client.is_model_ready("texts")


def test_models_are_unloaded_and_loaded_with_control(serve_wire_triton_folder: Path) -> None:
    rows = given("input", one_tensor(numbers()), True)
    with (
        on_a_port(service_of(serve_wire_triton_folder, control=True)) as address,
        client_at(address) as client,
    ):
        before = client.infer("texts", [rows])
        client.unload_model("texts", unload_dependents=True)
        assert not client.is_model_ready("texts")
        assert client.is_server_ready()
        states = {one["name"]: one["state"] for one in client.get_model_repository_index()}
        assert (states["texts"], states["ints"]) == ("UNAVAILABLE", "READY")
        with pytest.raises(InferenceServerException, match="'texts' is not loaded"):
            client.infer("texts", [rows])
        client.load_model("texts")
        after = client.infer("texts", [rows])
        same(after.as_numpy("probabilities"), before.as_numpy("probabilities"))
        with pytest.raises(InferenceServerException, match="no file of a model 'nobody'"):
            client.load_model("nobody")
        with pytest.raises(InferenceServerException, match=r"'config'.*leave it out"):
            client.load_model("texts", config="{}")


# --------------------------------------------------------- every datatype, both ways


class Echo(Served):
    """Answers what it is asked: an output of each datatype."""

    name, version, digest, platform = "echo", "1", "0" * 64, "none"
    inputs = outputs = tuple(TensorSpec(name, name, (-1, 2)) for name in DATATYPES)
    default_outputs, visits_per_row = tuple(DATATYPES), 1.0
    n_features = len(DATATYPES)

    def __init__(self) -> None:
        """Read no file."""

    def parse_inputs(self, tensors: Sequence[Tensor], absent: str = "error") -> Any:
        self.given = {tensor.name: tensor.cells for tensor in tensors}
        return tensors[0].cells

    def compute_outputs(self, batch: Any, wanted: Sequence[str]) -> list[Tensor]:
        return [Tensor(name, name, self.given[name]) for name in wanted]


EXTREME: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "FP16": [65504.0, -6e-8],
    "FP32": [np.float32(3.4028235e38), np.float32(-1e-45)],
    "FP64": [1.7976931348623157e308, 0.1],
    "BYTES": ["", '"\\ \u0000\n é 树 🌳'],
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InferenceServerClient]:
    path = tmp_path_factory.mktemp("echo") / "echo.treekit"
    path.write_text("")

    def read(*_: Any) -> Served:
        return Echo()

    repository = Repository([path], read)
    repository.refresh()
    with on_a_port(Service(repository)) as address, client_at(address) as client:
        yield client


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_every_datatype_is_transferred_unchanged(
    echo: InferenceServerClient, binary_in: bool, binary_out: bool
) -> None:
    tensors = {}
    for name, dtype in DATATYPES.items():
        ends = [np.iinfo(dtype).min, np.iinfo(dtype).max] if dtype.kind in "iu" else EXTREME[name]
        tensors[name] = np.array([ends, ends[::-1]], dtype=dtype)
    outputs = [InferRequestedOutput(name, binary_data=binary_out) for name in reversed(tensors)]
    inputs = [given(name, cells, binary_in) for name, cells in tensors.items()]
    found = echo.infer("echo", inputs, outputs=outputs)
    for name, cells in tensors.items():
        got = found.as_numpy(name)
        assert got.shape == (2, 2)
        same(got, cells)


def test_values_without_json_form_are_returned_as_null_and_counted(
    echo: InferenceServerClient,
) -> None:
    tensors = {name: np.zeros((1, 2), dtype) for name, dtype in DATATYPES.items()}
    tensors["BYTES"] = np.array([["a", "b"]], dtype=object)
    for name in ("FP16", "FP32", "FP64"):
        tensors[name] = np.array([[np.inf, 1]], tensors[name].dtype)
    inputs = [given(name, cells, True) for name, cells in tensors.items()]
    wanted = [
        InferRequestedOutput("FP64", binary_data=False),
        InferRequestedOutput("FP32", binary_data=True),
    ]
    found = echo.infer("echo", inputs, outputs=wanted)
    assert found.get_output("FP64")["data"] == [None, 1.0]
    assert found.get_output("FP64")["parameters"] == {"not_finite": 1}
    same(found.as_numpy("FP32"), tensors["FP32"])
