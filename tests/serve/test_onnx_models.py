"""ONNX files in service: treekit's own as its models, others as onnxruntime answers them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import treekit
from tests.extremes import EXTREMES, extreme_rows, refused
from tests.reference.models import random_model
from treekit.data.features import round_to_dtype
from treekit.data.schema import Column, Schema
from treekit.errors import ModelFileError
from treekit.interop.onnx_nodes import load_proto
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import Model, make_model
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.models import onnx_model as of_onnx
from treekit.serve.models import onnx_model as onnx_served
from treekit.serve.models import onnx_model as onnx_session
from treekit.serve.models.onnx_model import (
    OnnxServed,
    OwnGraphServed,
    load_graph,
    read_onnx_served,
)
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor, get_datatype
from treekit.serve.models.treekit_model import TreekitServed

Cells = npt.NDArray[Any]
RNG = np.random.default_rng(8)
NUMBERS = RNG.normal(size=(300, 4)).astype(np.float32)
CLASSES = np.array(["no", "perhaps", "yes"])[(NUMBERS[:, 0] > 0).astype(int) + (NUMBERS[:, 1] > 1)]
FLOAT, STRING, INT64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


@pytest.fixture(autouse=True)
def untried(request, monkeypatch):
    """No process a graph, but in the tests of trials."""
    if "trial" not in request.function.__name__:
        monkeypatch.setattr(of_onnx, "run_trial", lambda content: None)


def tensor(name: str, cells: Any, datatype: str = "") -> Tensor:
    array = np.asarray(cells)
    array = array.astype(object) if array.dtype.kind == "U" else array
    return Tensor(name, datatype or get_datatype(array.dtype), array)


def asked(served: Served, *tensors: Tensor, names: list[str] | None = None) -> dict[str, Cells]:
    wanted = served.select_outputs(names)
    given = served.compute_outputs(served.parse_inputs(tensors), wanted)
    assert [one.name for one in given] == list(wanted)
    kinds = {spec.name: spec for spec in served.outputs}
    for one in given:
        spec = kinds[one.name]
        assert one.datatype == spec.datatype == get_datatype(one.cells.dtype)
        assert len(spec.shape) == one.cells.ndim
        assert all(want in (-1, got) for want, got in zip(spec.shape, one.shape, strict=True))
    return {one.name: one.cells for one in given}


def on_disk(proto: Any, folder: Path, name: str = "m") -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def read(path: Path) -> Served:
    return read_onnx_served(path, "m", "1", "0" * 64)


def service(proto: Any, folder: Path) -> Served:
    return read(on_disk(proto, folder))


def graph(nodes: list[Any], inputs: Any, outputs: Any, constants: Any = (), **more: Any) -> Any:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid(*one) for one in more.pop("opsets", [("", 17)])]
    return helper.make_model(made, opset_imports=opsets, ir_version=8, **more)


# ---------------------------------------------------------------- others' graphs


def by_onnxruntime(content: bytes, rows: Cells) -> list[Cells]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, float sums depend on the number of rows
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"X": rows}))


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(7, max_depth=4, random_state=0).fit(NUMBERS, CLASSES)


@pytest.mark.parametrize("zipmap", [True, False], ids=["a map", "a tensor"])
def test_a_classifier_of_scikit_learn_answers_tensors_whether_or_not_it_ends_in_a_map(
    tmp_path, zipmap
):
    model = make_pipeline(StandardScaler(), forest())
    model.fit(NUMBERS, CLASSES)
    options = {} if zipmap else {"options": {"zipmap": False}}
    proto = to_onnx(model, NUMBERS[:1], target_opset={"": 17, "ai.onnx.ml": 3}, **options)
    (label, probability) = [output.name for output in proto.graph.output]
    served = service(proto, tmp_path)
    assert isinstance(served, OnnxServed)
    assert served.platform == "onnxruntime_onnx"
    assert served.inputs == (("X", "FP32", (-1, 4)),)
    assert served.outputs == ((label, "BYTES", (-1,)), (probability, "FP32", (-1, 3)))
    assert served.classes == ({probability: ("no", "perhaps", "yes")} if zipmap else {})

    plain = to_onnx(model, NUMBERS[:1], options={"zipmap": False}).SerializeToString()
    labels, shares = by_onnxruntime(plain, NUMBERS)
    answer = asked(served, tensor("X", NUMBERS))
    assert answer[label].tolist() == labels.tolist()
    assert answer[probability].tobytes() == shares.tobytes()
    assert asked(served, tensor("X", NUMBERS[:2]), names=[probability])[probability].shape == (2, 3)
    assert served.has_rows
    assert not served.parse_inputs([tensor("X", NUMBERS)]).must_run_alone


def test_a_regressor_answers_as_onnxruntime_does(tmp_path):
    model = RandomForestRegressor(5, max_depth=3, random_state=0).fit(NUMBERS, NUMBERS[:, 2])
    proto = to_onnx(model, NUMBERS[:1])
    served = service(proto, tmp_path)
    (wanted,) = by_onnxruntime(proto.SerializeToString(), NUMBERS)
    assert asked(served, tensor("X", NUMBERS))["variable"].tobytes() == wanted.tobytes()


def test_texts_and_numbers_go_in_by_name_and_float_nulls_are_nan(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"size": NUMBERS[:, 0], "town": np.where(NUMBERS[:, 1] > 0, "Rom", "Ulm")})
    model = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough"
        ),
        RandomForestClassifier(5, max_depth=3, random_state=0),
    ).fit(table, CLASSES)
    kinds = [("size", FloatTensorType([None, 1])), ("town", StringTensorType([None, 1]))]
    served = service(to_onnx(model, initial_types=kinds), tmp_path)
    assert served.inputs == (("size", "FP32", (-1, 1)), ("town", "BYTES", (-1, 1)))
    size, town = tensor("size", NUMBERS[:, :1]), tensor("town", table[["town"]].to_numpy(str))
    answer = asked(served, town, size)["output_label"]
    assert answer.tolist() == model.predict(table).tolist()

    # As a request's nulls come: float64 with NaN, and objects with None.
    null = Tensor("size", "FP32", np.where(NUMBERS[:, :1] > 1, np.nan, NUMBERS[:, :1]).astype("f8"))
    nan = tensor("size", null.cells.astype("f4"))
    said, wanted = asked(served, null, town), asked(served, nan, town)
    assert {name: cells.tolist() for name, cells in said.items()} == {
        name: cells.tolist() for name, cells in wanted.items()
    }
    cells = np.array([["Rom"], [None]], dtype=object)
    with pytest.raises(InvalidRequestError, match=r"'town' has a null at \[1, 0\].*BYTES.*'m'"):
        served.parse_inputs([tensor("size", NUMBERS[:2, :1]), Tensor("town", "BYTES", cells)])


KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


@pytest.mark.parametrize("datatype", KINDS)
def test_every_datatype_of_the_protocol_comes_back_as_it_went_in(tmp_path, datatype):
    kind = KINDS[datatype]
    proto = graph(
        [helper.make_node("Identity", ["a"], ["b"])],
        [("a", kind, ["N", 2])],
        [("b", kind, ["N", 2])],
    )
    served = service(proto, tmp_path)
    cells = [["ü\0", ""]] if datatype == "BYTES" else [[0, 1]]
    given = Tensor("a", datatype, np.array(cells, dtype=onnx_session.DATATYPES[datatype]))
    (back,) = asked(served, given).values()
    assert back.dtype == given.cells.dtype
    assert back.tolist() == given.cells.tolist()
    if datatype[:2] in ("IN", "UI"):
        with pytest.raises(InvalidRequestError, match=rf"null at \[0, 1\].*{datatype}"):
            served.parse_inputs([Tensor("a", datatype, np.array([[0, np.nan]]))])
    if datatype == "BOOL":
        with pytest.raises(InvalidRequestError, match=r"null at \[0, 0\].*BOOL"):
            served.parse_inputs([Tensor("a", datatype, np.array([[None, True]], dtype=object))])


def doubled(*shapes: Any, kind: int = FLOAT) -> Any:
    """The sum of its inputs, which have these shapes."""
    names = [f"x{at}" for at in range(len(shapes))]
    return graph(
        [helper.make_node("Sum", names, ["y"])],
        [(name, kind, shape) for name, shape in zip(names, shapes, strict=True)],
        [("y", kind, None)],
    )


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ([], "'x0' is missing from the request; model 'm' requires: x0, x1"),
        ([tensor("x0", NUMBERS[:, :2])], "'x1' is missing from the request"),
        ([tensor("x9", NUMBERS)], "no input 'x9'"),
        ([tensor("x0", NUMBERS), tensor("x0", NUMBERS)], "duplicate input"),
        ([tensor("x0", NUMBERS[:, :2].astype("f8"))], "'x0' has datatype FP64.*requires FP32"),
        ([tensor("x0", NUMBERS[:, :2].astype("i8"))], "'x0' has datatype INT64.*requires FP32"),
        ([tensor("x0", NUMBERS)], r"'x0' has shape \[300, 4\]; model 'm' takes \[-1, 2\]"),
        ([tensor("x0", NUMBERS[0])], r"'x0' has shape \[4\]"),
        (
            [tensor("x0", NUMBERS[:, :2]), tensor("x1", NUMBERS[:9, :2])],
            "'x1' has 9 rows but 'x0' has 300",
        ),
    ],
)
def test_a_request_that_does_not_fit_is_told_the_input_and_the_rule(tmp_path, tensors, said):
    served = service(doubled(["N", 2], ["N", 2]), tmp_path)
    if tensors and tensors[0].name == "x0" and "x1" not in said:
        tensors = [*tensors, tensor("x1", NUMBERS[:, :2])]
    with pytest.raises(InvalidRequestError, match=said):
        served.parse_inputs(tensors)


def test_rows_that_are_answered_in_view_of_each_other_are_never_joined(tmp_path):
    centred = graph(
        [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["y"]),
        ],
        [("x", FLOAT, ["N", 2])],
        [("y", FLOAT, ["N", 2])],
    )
    total = graph(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
        [("x", FLOAT, ["N", 2])],
        [("y", FLOAT, [])],
    )
    fixed = doubled([1, 2])
    for proto, rows in ((centred, 3), (total, 3), (fixed, 1)):
        served = service(proto, tmp_path)
        assert not served.has_rows
        name = served.inputs[0].name
        assert served.parse_inputs([tensor(name, NUMBERS[:rows, :2])]).must_run_alone
    assert served.inputs[0].shape == (1, 2)
    with pytest.raises(InvalidRequestError, match=r"shape \[3, 2\].*\[1, 2\]"):
        served.parse_inputs([tensor("x0", NUMBERS[:3, :2])])


def test_an_input_with_a_value_of_its_own_may_be_left_out(tmp_path):
    proto = graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [("x", FLOAT, ["N", 2]), ("factor", FLOAT, [1])],
        [("y", FLOAT, ["N", 2])],
        [helper.make_tensor("factor", FLOAT, [1], [2.0])],
    )
    served = service(proto, tmp_path)
    assert [spec.name for spec in served.inputs] == ["x"]
    x = tensor("x", NUMBERS[:3, :2])
    assert asked(served, x)["y"].tolist() == (2 * x.cells).tolist()
    three = tensor("factor", np.float32([3]))
    assert asked(served, three, x)["y"].tolist() == (3 * x.cells).tolist()
    assert served.parse_inputs([x, three]).must_run_alone
    assert not served.parse_inputs([x]).must_run_alone


def test_a_refusal_of_the_graph_is_one_line_without_paths(tmp_path):
    proto = graph(
        [
            helper.make_node("Cast", ["x"], ["i"], to=INT64),
            helper.make_node("Gather", ["table", "i"], ["y"], name="the lookup"),
        ],
        [("x", FLOAT, ["N"])],
        [("y", FLOAT, ["N"])],
        [helper.make_tensor("table", FLOAT, [2], [5.0, 7.0])],
    )
    served = service(proto, tmp_path)
    assert asked(served, tensor("x", np.float32([1, 0])))["y"].tolist() == [7.0, 5.0]
    with pytest.raises(InvalidRequestError, match=r"'m': its graph failed: .*the lookup:") as told:
        asked(served, tensor("x", np.float32([2])))
    assert ".cc" not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_refusal_of_onnxruntime_tells_no_places_in_its_source(tmp_path):
    proto = graph(
        [helper.make_node("Reshape", ["x", "pairs"], ["y"])],
        [("x", FLOAT, ["N"])],
        [("y", FLOAT, None)],
        [helper.make_tensor("pairs", INT64, [2], [-1, 2])],
    )
    served = service(proto, tmp_path)
    with pytest.raises(InvalidRequestError, match=r"graph failed: size != 0") as told:
        asked(served, tensor("x", np.float32([1, 2, 3])))
    assert not re.search(r"/\w+|\.(cc|h):", str(told.value))


def test_what_memory_cannot_hold_is_said_and_the_next_request_is_answered(tmp_path):
    proto = graph(
        [
            helper.make_node("Cast", ["x"], ["size"], to=INT64),
            helper.make_node("ConstantOfShape", ["size"], ["many"]),
            helper.make_node("ReduceSum", ["many"], ["y"]),
        ],
        [("x", FLOAT, ["N"])],
        [("y", FLOAT, None)],
    )
    served = service(proto, tmp_path)
    with pytest.raises(UnavailableError, match="not enough memory"):
        asked(served, tensor("x", np.float32([2**45])))
    assert asked(served, tensor("x", np.float32([4])))["y"].tolist() == [0.0]


def endless() -> Any:
    """A loop whose condition is its input: above 0 it never ends."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, None),
        ],
    )
    return graph(
        [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["cond"], to=TensorProto.BOOL),
            helper.make_node("Loop", ["", "cond", "x"], ["y"], body=body),
        ],
        [("x", FLOAT, ["N"])],
        [("y", FLOAT, ["N"])],
    )


def test_a_loop_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_served, "_MAX_LOOP_SECONDS", 0.2)
    served = service(endless(), tmp_path)
    assert served.visits_per_row == float("inf")  # never on an event loop
    start = time.monotonic()
    with pytest.raises(UnavailableError, match=r"did not end within 0\.2 s"):
        asked(served, tensor("x", np.float32([1])))
    assert time.monotonic() - start < 5
    assert asked(served, tensor("x", np.float32([0])))["y"].tolist() == [0.0]


def test_small_graphs_are_answered_at_once_and_great_ones_are_not(tmp_path):
    small = service(doubled(["N", 2]), tmp_path)
    assert 0 < small.visits_per_row < 20_000
    square = np.full((900, 900), 0.5, dtype=np.float32)
    proto = graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"])]
        + [helper.make_node("MatMul", ["a" * n, "w"], ["a" * (n + 1)]) for n in range(1, 9)],
        [("x", FLOAT, ["N", 900])],
        [("a" * 9, FLOAT, ["N", 900])],
        [helper.make_tensor("w", FLOAT, square.shape, square.tobytes(), raw=True)],
    )
    assert service(proto, tmp_path).visits_per_row > 10 * small.visits_per_row


# ---------------------------------------------------------------- hostile files


def outside(where: str) -> Any:
    """A graph one of whose tensors is kept in another file."""
    kept = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    kept.external_data.add(key="location", value="../secrets")
    if where == "initializer":
        return graph(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            [("x", FLOAT, ["N", 2])],
            [("y", FLOAT, ["N", 2])],
            [kept],
        )
    constant = helper.make_node("Constant", [], ["w"], value=kept)
    if where == "attribute":
        nodes = [constant, helper.make_node("Add", ["x", "w"], ["y"])]
        return graph(nodes, [("x", FLOAT, ["N", 2])], [("y", FLOAT, ["N", 2])])
    inner = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("w", FLOAT, [2])])
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]
    return graph(nodes, [("x", TensorProto.BOOL, [1])], [("y", FLOAT, [2])])


@pytest.mark.parametrize("where", ["initializer", "attribute", "subgraph"])
def test_data_in_other_files_are_never_read(tmp_path, where):
    with pytest.raises(ModelFileError, match=r"m\.onnx' cannot be served: its tensor 'w'.*another"):
        service(outside(where), tmp_path)


def test_operators_that_are_not_of_onnx_are_refused_by_name(tmp_path):
    proto = graph(
        [helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")],
        [("x", FLOAT, [2, 2])],
        [("y", FLOAT, [2, 2])],
        opsets=[("", 17), ("com.microsoft", 1)],
    )
    with pytest.raises(ModelFileError, match=r"'FusedMatMul' is of the domain 'com\.microsoft'"):
        service(proto, tmp_path)


def test_functions_of_the_file_itself_are_run(tmp_path):
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    proto = graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [("x", FLOAT, ["N", 2])],
        [("y", FLOAT, ["N", 2])],
        opsets=[("", 17), ("own", 1)],
        functions=[twice],
    )
    assert asked(service(proto, tmp_path), tensor("x", NUMBERS[:2, :2]))["y"].tolist() == (
        (2 * NUMBERS[:2, :2]).tolist()
    )


def unusable(what: str) -> Any:
    if what == "no input":
        constant = helper.make_tensor("c", FLOAT, [1], [1.0])
        return graph(
            [helper.make_node("Constant", [], ["y"], value=constant)], [], [("y", FLOAT, [1])]
        )
    if what == "a single value":
        return doubled([])
    if what == "bfloat16":
        return graph(
            [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)],
            [("x", FLOAT, ["N"])],
            [("y", TensorProto.BFLOAT16, ["N"])],
        )
    if what == "a sequence":
        proto = graph(
            [helper.make_node("SequenceConstruct", ["x"], ["y"])],
            [("x", FLOAT, ["N"])],
            [("y", FLOAT, ["N"])],
        )
        kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        proto.graph.output[0].type.CopyFrom(kind)
        return proto
    return graph(
        [helper.make_node("Nonsense", ["x"], ["y"])], [("x", FLOAT, [1])], [("y", FLOAT, [1])]
    )


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no input", "its graph has no inputs"),
        ("a single value", "input 'x0' is a scalar"),
        ("bfloat16", r"output 'y' is a tensor\(bfloat16\)"),
        ("a sequence", r"output 'y' is a seq\(tensor\(float\)\)"),
        ("no operator", "onnxruntime cannot load it: .*Nonsense"),
    ],
)
def test_a_graph_that_the_protocol_has_no_words_for_is_refused_by_name(tmp_path, what, said):
    with pytest.raises(ModelFileError, match=said):
        service(unusable(what), tmp_path)


def test_a_file_that_is_no_onnx_is_refused(tmp_path):
    path = tmp_path / "m.onnx"
    for content in (b"", b"\x08", b"\x08\xff\xff", b"{}", b"\x0cORTM" * 9):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"m\.onnx' cannot be served"):
            read(path)


def test_a_file_in_the_disguise_of_another_format_is_read_as_onnx(tmp_path):
    """onnxruntime takes bytes 4 to 8 for the sign of a format of its own."""
    proto = doubled(["N", 2])
    proto.ir_version = 8
    proto.producer_name = "ORTM and more"
    assert on_disk(proto, tmp_path).read_bytes()[4:8] == b"ORTM"
    assert asked(service(proto, tmp_path), tensor("x0", NUMBERS[:1, :2]))["y"].shape == (1, 2)


# ---------------------------------------------------------------- trials


@pytest.mark.system
def test_a_trial_passes_what_works_and_what_onnxruntime_merely_refuses(tmp_path):
    onnx_session.run_trial(doubled(["N", 2]).SerializeToString())
    onnx_session.run_trial(unusable("no operator").SerializeToString())
    onnx_session.run_trial(b"\x08")


@pytest.mark.system
def test_a_graph_that_takes_all_memory_fails_its_trial(tmp_path):
    proto = graph(
        [
            helper.make_node("ConstantOfShape", ["size"], ["many"]),
            helper.make_node("ReduceSum", ["many"], ["one"], keepdims=0),
            helper.make_node("Add", ["x", "one"], ["y"]),
        ],
        [("x", FLOAT, ["N", 2])],
        [("y", FLOAT, ["N", 2])],
        [helper.make_tensor("size", INT64, [1], [2**31])],
    )
    with pytest.raises(ModelFileError, match=r"'.*m\.onnx' cannot be served.*more than 4,096 MiB"):
        service(proto, tmp_path)


@pytest.mark.system
def test_a_graph_that_does_not_end_fails_its_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_session, "_TRIAL_SECONDS", 1.0)
    with pytest.raises(ModelFileError, match=r"did not load it and predict one row within 1 s"):
        service(endless(), tmp_path)


@pytest.mark.system
def test_a_trial_that_dies_is_told_by_its_signal(monkeypatch):
    real = onnx_session.subprocess.run

    def dies(command, **more):
        return real([command[0], "-c", "import os; os.kill(os.getpid(), 11)"], **more)

    monkeypatch.setattr(onnx_session.subprocess, "run", dies)
    with pytest.raises(ModelFileError, match=r"crashed \(SIGSEGV\) in a trial"):
        onnx_session.run_trial(b"")


# ---------------------------------------------------------------- treekit's own graphs


def exported(model: Any, folder: Path, **settings: Any) -> Path:
    (path,) = treekit.export(model, "onnx", folder / "m.onnx", **settings)
    return path


def bits(answer: dict[str, Cells]) -> dict[str, Any]:
    return {
        name: (
            cells.dtype.str,
            cells.shape,
            cells.tolist() if cells.dtype == object else cells.tobytes(),
        )
        for name, cells in answer.items()
    }


FEW = {
    *("one_class", "float32_neighbours", "several_labels", "several_numbers", "hostile_names"),
    *("oblique", "surrogates", "fractional", "hard_costs", "refuses_both", "boosted_four"),
    *("wide_sums", "bool_labels", "mixed", "mixed64_numbers"),
}
"""Extremes that differ in what a graph holds; the matrix has the others."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FEW else pytest.mark.matrix)
        for name in EXTREMES
        if not name.startswith(("five", "two_t"))
    ],
)
def test_a_model_and_its_graph_answer_with_the_same_bits(tmp_path, name):
    model = EXTREMES[name]()
    path = exported(model, tmp_path)
    rows = extreme_rows(model, most=60)
    rows = round_to_dtype(rows[~refused(model, rows)], model.schema.dtype)
    by_model = TreekitServed("m", "1", "", model)
    by_graph = load_graph(load_proto(path), "m", "1", "")
    by_file = read(path)
    want = bits(asked(by_model, tensor("input", rows)))
    assert bits(asked(by_graph, tensor("X", rows))) == want
    if isinstance(by_file, OwnGraphServed):
        assert by_file.inputs == by_model.inputs
        assert by_file.default_outputs == by_model.default_outputs
        assert bits(asked(by_file, tensor("input", rows))) == want
    else:  # what the importer refuses by name
        assert model.missing in ("surrogate", "fractional") or "oblique" in name
    assert bits(asked(by_file, tensor("X", rows))) == want


SIZE_AND_COLOUR = Schema(
    (Column("size"), Column("colour", "nominal", ("red", "green", "blue"))), classes=("a", "b", "c")
)
SIZES = np.array([[np.nan], [0.5], [1.5], [2.75], [4.0], [9.0], [3.0]], dtype=np.float32)
COLOURS = np.array([["red"], ["green"], ["blue"], ["purple"], [None], [""], ["red "]], dtype=object)


def mixed_model() -> Model:
    return random_model(5, SIZE_AND_COLOUR, n_trees=9, n_splits=12)


def pairs() -> tuple[Cells, Cells]:
    """Every size with every colour."""
    size = np.repeat(SIZES, len(COLOURS), axis=0)
    return size, np.tile(COLOURS, (len(SIZES), 1))


def test_columns_of_numbers_and_texts_are_answered_with_the_same_bits(tmp_path):
    model = mixed_model()
    path = exported(model, tmp_path, inputs="columns")
    size, colour = pairs()
    known = np.where(np.equal(colour, None), "", colour)  # a graph has no nulls of texts
    given = [tensor("size", size), Tensor("colour", "BYTES", colour)]
    plain = [tensor("size", size), Tensor("colour", "BYTES", known)]
    want = bits(asked(TreekitServed("m", "1", "", model), *given))
    by_file = read(path)
    assert isinstance(by_file, OwnGraphServed)
    assert bits(asked(by_file, *given)) == want
    by_graph = load_graph(load_proto(path), "m", "1", "")
    assert [spec.name for spec in by_graph.inputs] == ["size", "colour"]
    assert bits(asked(by_graph, *plain)) == want
    with pytest.raises(InvalidRequestError, match="'colour' has a null"):
        by_graph.parse_inputs(given)


def test_a_graph_with_a_map_of_probabilities_is_the_model_or_gives_them_rounded(tmp_path):
    model = mixed_model()
    path = exported(model, tmp_path, zipmap=True)
    codes = RNG.choice([0.0, 1.0, 2.0, 3.0, np.nan, 0.5], size=80)
    rows = np.stack([RNG.choice(SIZES[:, 0], size=80), codes], axis=1).astype(np.float32)
    want = asked(TreekitServed("m", "1", "", model), tensor("input", rows))
    by_file = read(path)
    assert isinstance(by_file, OwnGraphServed)
    assert bits(asked(by_file, tensor("X", rows))) == bits(want)
    by_graph = load_graph(load_proto(path), "m", "1", "")
    assert by_graph.classes == {"probabilities": ("a", "b", "c")}
    rounded = {"label": want["label"], "probabilities": want["probabilities"].astype(np.float32)}
    assert bits(asked(by_graph, tensor("X", rows))) == bits(rounded)


def test_a_graph_that_tells_leaves_and_paths_runs_as_a_graph_and_gives_them(tmp_path):
    model = mixed_model()
    path = exported(model, tmp_path, leaf=True, decision_path=True)
    by_file = read(path)
    assert isinstance(by_file, OnnxServed)
    assert by_file.default_outputs == ("label", "probabilities", "leaf", "path")
    rows = np.array([[1.5, 0], [np.nan, 2]], dtype=np.float32)
    answer = asked(by_file, tensor("X", rows))
    own = asked(TreekitServed("m", "1", "", model), tensor("input", rows), names=["leaf"])
    assert answer["leaf"].tolist() == own["leaf"].tolist()
    assert answer["path"].shape == (2, 9)


def test_what_a_graph_lost_of_its_model_is_no_output_of_it(tmp_path):
    by_file = read(exported(mixed_model(), tmp_path))
    assert [spec.name for spec in by_file.outputs] == ["label", "probabilities", "rule"]
    for name in ("leaf", "contributions", "bias"):
        with pytest.raises(InvalidRequestError, match=f"no output '{name}'"):
            by_file.select_outputs([name])


def yes_from(at: float, *columns: str, **policies: Any) -> Model:
    """Yes above a threshold of the first column."""
    schema = Schema(tuple(map(Column, columns)), classes=("no", "yes"))
    return make_model(
        schema, [build_tree(threshold(0, at, leaf([1, 0]), leaf([0, 1])), schema)], **policies
    )


def test_columns_whose_names_an_input_cannot_have_go_by_both(tmp_path):
    path = exported(yes_from(0.5, "label", "z"), tmp_path, inputs="columns")
    graphs_own = [one.name for one in load_proto(path).graph.input]
    assert graphs_own[0] != "label"
    by_file = read(path)
    z = tensor("z", np.float32([[1.0]]))
    for name in ("label", graphs_own[0]):
        assert asked(by_file, tensor(name, np.float32([[1.0]])), z)["label"].tolist() == ["yes"]


def test_a_column_called_as_the_graphs_tensor_is_that_column(tmp_path):
    by_file = read(exported(yes_from(0.5, "X", "z"), tmp_path))
    one = np.float32([[1.0]])
    assert asked(by_file, tensor("z", 0 * one), tensor("X", one))["label"].tolist() == ["yes"]
    with pytest.raises(InvalidRequestError, match="'z' is missing from the request"):
        by_file.parse_inputs([tensor("X", one)])


def test_a_row_that_a_graph_of_treekit_refuses_is_told_in_its_words(tmp_path):
    path = exported(yes_from(0.5, "size", missing="error"), tmp_path)
    by_graph = load_graph(load_proto(path), "m", "1", "")
    with pytest.raises(InvalidRequestError, match="this model refuses missing values"):
        asked(by_graph, tensor("X", np.float32([[np.nan]])))
    assert asked(by_graph, tensor("X", np.float32([[1.0]])))["label"].tolist() == ["yes"]


def test_a_damaged_graph_of_treekit_is_refused_and_not_run(tmp_path):
    path = exported(mixed_model(), tmp_path)
    proto = load_proto(path)
    for told in proto.metadata_props:
        if told.key == "treekit.schema":
            told.value = told.value[:-1]
    with pytest.raises(ModelFileError, match="damaged"):
        service(proto, tmp_path)
