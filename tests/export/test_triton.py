"""Models as folders of a Triton repository: configuration, graph and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema_of_triton

from tests.export.test_all_targets import HOSTILE
from tests.extremes import EXTREMES
from tests.reference.models import mixed_schema, random_model
from treekit.cli import main
from treekit.contracts import Exporter
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export import export
from treekit.export.languages import treekit_exporters
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import Model, make_model
from treekit.registry.kinds import check_record, find_kind
from treekit.testing import check_exporter

pytestmark = pytest.mark.matrix

MODEL = random_model(3, mixed_schema())
# What the backend's own source takes for each type (src/onnxruntime_utils.cc).
TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(int64)": "TYPE_INT64",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(string)": "TYPE_STRING",
}


def config_of(path: Path) -> Any:
    """The configuration as the server's own schema reads it: unknown fields are an error."""
    text = path.read_text(encoding="utf-8")
    return text_format.Parse(text, schema_of_triton.ModelConfig())


def name_of_type(number: int) -> str:
    return str(schema_of_triton.DataType.Name(number))


def check_tensor(told: Any, of_graph: Any, max_batch_size: int) -> None:
    """As the backend compares a configuration with its graph when it loads it.

    `ModelInstanceState::ValidateInputs` and ``ValidateOutputs``: the shape of ``reshape`` if
    there is one, else ``dims``, behind the batch's dimension if there is one.
    """
    assert told.name == of_graph.name
    assert name_of_type(told.data_type) == TYPES[of_graph.type]
    assert len(told.dims), "the empty shape is not allowed"
    inner = list(told.reshape.shape) if told.HasField("reshape") else list(told.dims)
    full = [-1, *inner] if max_batch_size else inner
    assert full == [size if isinstance(size, int) else -1 for size in of_graph.shape]
    assert np.prod([size for size in told.dims if size > 0] or [1]) == np.prod(
        [size for size in inner if size > 0] or [1]
    )


@pytest.mark.parametrize("max_batch_size", [0, 64])
@pytest.mark.parametrize("inputs", ["tensor", "columns"])
@pytest.mark.parametrize("name", ["mixed", "mixed_numbers", "several_labels", "several_numbers"])
def test_configuration_is_valid_and_matches_the_tensors_of_the_graph(
    tmp_path, name, inputs, max_batch_size
):
    paths = export(
        EXTREMES[name](), "triton", tmp_path / "adult", inputs=inputs, leaf=True,
        max_batch_size=max_batch_size,
    )  # fmt: skip
    assert paths[:2] == [tmp_path / "adult/config.pbtxt", tmp_path / "adult/1/model.onnx"]
    config = config_of(paths[0])
    assert (config.name, config.backend) == ("adult", "onnxruntime")
    assert config.platform == "onnxruntime_onnx"
    assert config.default_model_filename == "model.onnx"
    assert config.max_batch_size == max_batch_size
    assert config.version_policy.latest.num_versions == 1
    assert [(one.kind, one.count) for one in config.instance_group] == [
        (schema_of_triton.ModelInstanceGroup.KIND_CPU, 1)
    ]
    assert config.parameters["intra_op_thread_count"].string_value == "1"
    assert not config.HasField("dynamic_batching")
    session = onnxruntime.InferenceSession(paths[1], providers=["CPUExecutionProvider"])
    assert [one.name for one in config.input] == [one.name for one in session.get_inputs()]
    for told, of_graph in zip(
        [*config.input, *config.output],
        [*session.get_inputs(), *session.get_outputs()],
        strict=True,
    ):
        check_tensor(told, of_graph, max_batch_size)


def test_settings_are_written_to_their_configuration_fields(tmp_path):
    (path, graph, _) = export(
        MODEL, "triton", tmp_path / "adult", version=12, max_batch_size=256, batch_delay=500,
        instances=3, threads=0, target_runtime="1.20",
    )  # fmt: skip
    config = config_of(path)
    assert graph == tmp_path / "adult/12/model.onnx"
    assert config.max_batch_size == 256
    assert config.dynamic_batching.max_queue_delay_microseconds == 500
    assert config.instance_group[0].count == 3
    assert config.parameters["intra_op_thread_count"].string_value == "0"
    with pytest.raises(SettingError, match="no setting 'zipmap'"):
        export(MODEL, "triton", tmp_path / "adult", zipmap=True)
    with pytest.raises(SettingError, match="version"):
        export(MODEL, "triton", tmp_path / "adult", version=0)


def test_class_names_are_in_the_label_file_of_the_probabilities_output(tmp_path):
    schema = Schema((Column("x"),), classes=("nein", "später", "ja"))
    tree = build_tree(threshold(0, 0.5, leaf([1, 0, 2]), leaf([0, 3, 0])), schema)
    (path, _, labels) = export(make_model(schema, [tree]), "triton", tmp_path / "m")
    label, shares = config_of(path).output
    assert (label.label_filename, shares.label_filename) == ("", labels.name)
    assert labels.read_bytes() == "nein\nspäter\nja\n".encode()
    broken = Schema((Column("x"),), classes=("nein", "ja\nso"))
    tree = build_tree(leaf([1, 2]), broken)
    (path, _) = export(make_model(broken, [tree]), "triton", tmp_path / "n")
    assert [one.label_filename for one in config_of(path).output] == ["", ""]


def test_hostile_column_names_are_escaped(tmp_path):
    names = [*HOSTILE, '" max_batch_size: 9 x: "', "a\\", "}", "\u202eabc", "'"]
    names = list(dict.fromkeys(names))
    schema = Schema(tuple(map(Column, names)), classes=("n", "y"))
    tree = build_tree(threshold(0, 0.5, leaf([1, 0]), leaf([0, 1])), schema)
    (path, graph, _) = export(
        make_model(schema, [tree]), "triton", tmp_path / 'of "me" \\n', inputs="columns"
    )
    config = config_of(path)
    assert config.name == 'of "me" \\n'
    assert config.max_batch_size == 0
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert [one.name for one in config.input] == [one.name for one in session.get_inputs()]
    assert sum(one.name in names for one in config.input) == len(names)
    text = path.read_text(encoding="utf-8")
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_model_that_refuses_rows_is_not_batched(tmp_path):
    refusing = EXTREMES["refuses_missing"]()
    with pytest.raises(ExportError, match=r"refuses some rows.*leave out batch_delay"):
        export(refusing, "triton", tmp_path / "m", max_batch_size=8, batch_delay=0)
    message = "batch_delay=5 needs max_batch_size of at least 2, got 0"
    with pytest.raises(ExportError, match=message):
        export(MODEL, "triton", tmp_path / "m", batch_delay=5)
    assert not (tmp_path / "m").exists()
    export(refusing, "triton", tmp_path / "m", max_batch_size=8)
    assert config_of(tmp_path / "m/config.pbtxt").max_batch_size == 8


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"'m\\udcff' is not valid Unicode text"):
        export(MODEL, "triton", tmp_path / "m\udcff")


# ---------------------------------------------------------------- its place


@pytest.mark.parametrize("output", ["repo/adult", "repo/adult/config.pbtxt", "repo/adult.v2"])
def test_output_may_be_the_folder_or_its_main_file(tmp_path, output):
    (config, *_) = export(MODEL, "triton", tmp_path / output)
    assert config.parent == tmp_path / output.removesuffix("/config.pbtxt")
    assert config_of(config).name == config.parent.name


@pytest.mark.parametrize("name", ["adult.onnx", "adult.c", ""])
def test_folder_named_like_a_file_of_another_target_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match="cannot be a model folder"):
        export(MODEL, "triton", name)
    assert list(tmp_path.iterdir()) == []


def test_export_of_version_2_keeps_version_1(tmp_path):
    export(MODEL, "triton", tmp_path / "m")
    export(MODEL, "triton", tmp_path / "m", version=2)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert files == ["m/1/model.onnx", "m/2/model.onnx", "m/config.pbtxt", "m/labels.txt"]


def test_a_failed_export_leaves_no_folders_behind(tmp_path):
    export(MODEL, "triton", tmp_path / "m")
    before = (tmp_path / "m/config.pbtxt").read_bytes()
    (tmp_path / "m/2").write_text("in the way")
    with pytest.raises(ExportError, match="cannot write"):
        export(MODEL, "triton", tmp_path / "m", version=2, max_batch_size=5)
    assert (tmp_path / "m/config.pbtxt").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "1", "2", "config.pbtxt", "labels.txt",
    ]  # fmt: skip
    too_long = {"new/config.pbtxt": b"", f"new/1/{'x' * 300}": b""}
    exporter = Exporter("t", "/config.pbtxt", lambda model, name: too_long)
    with pytest.raises(ExportError, match="cannot write"):
        export(MODEL, exporter, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "name", ["other/b", "b", "m/../b", "m//b", "/m/b", "m/", "m\\b", "m/a\\b", "../m/b"]
)
def test_folder_exporter_cannot_write_outside_its_folder(tmp_path, name):
    exporter = Exporter("sly", "/a", lambda *_: {"m/a": b"", name: b""})
    with pytest.raises(PluginError, match=r"'sly' returned the file name .* in the folder 'm'"):
        export(MODEL, exporter, tmp_path / "m")
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("suffix", ["a", "", "/a/b", ".a/b"])
def test_invalid_suffix_of_an_exporter_is_refused(suffix):
    record = Exporter("sly", suffix, lambda model, name: {})
    with pytest.raises(PluginError, match="has suffix"):
        check_record(record, find_kind(record))


def test_exporter_passes_the_contract_checks():
    (own,) = [one for one in treekit_exporters() if one.name == "triton"]
    assert check_exporter(own, strict=True).breaches == ()


# ---------------------------------------------------------------- its uses


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.output


def export_triton_small_model() -> Model:
    schema = Schema((Column("x"), Column("z")), classes=("no", "yes"))
    tree = build_tree(threshold(0, 0.5, leaf([3, 1]), leaf([0, 1]), missing=1), schema)
    return make_model(schema, [tree])


def test_command_writes_a_repository_that_verify_accepts(tmp_path):
    model = export_triton_small_model().save(tmp_path / "m.treekit") or tmp_path / "m.treekit"
    folder = tmp_path / "repo" / "adult"
    told = run("export", model, "--to", "triton", "--max-batch-size", 8, "-o", folder)
    paths = [folder / "config.pbtxt", folder / "1" / "model.onnx", folder / "labels.txt"]
    assert told.splitlines() == [str(path) for path in paths]
    assert config_of(paths[0]).max_batch_size == 8
    assert "is equal to the model, bit for bit" in run("verify", model, paths[1])
    for place in (folder, folder / "config.pbtxt"):
        run("export", model, "--to", "triton", "-o", place)
    assert config_of(paths[0]).max_batch_size == 0
    assert "triton" in run("plugins")


def test_export_does_not_overwrite_its_model_file(tmp_path):
    export_triton_small_model().save(tmp_path / "config.pbtxt")
    before = (tmp_path / "config.pbtxt").read_bytes()
    told = run("export", tmp_path / "config.pbtxt", "--to", "triton", "-o", tmp_path, code=2)
    assert "input of this command" in told
    assert (tmp_path / "config.pbtxt").read_bytes() == before
