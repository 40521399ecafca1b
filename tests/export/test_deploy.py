"""The recipes of examples/deploy hold together, and say what `treekit serve` understands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from click import Command, Context
from click.testing import CliRunner
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema_of_triton

from tests.export.test_all_targets import HOSTILE
from tests.extremes import EXTREMES
from tests.reference.models import mixed_schema, random_model
from tests.runtimes import need
from treekit.cli import main
from treekit.contracts import Exporter
from treekit.data.schema import Column, Schema
from treekit.discovery import check_record, find_kind
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export import export
from treekit.export.languages import treekit_exporters
from treekit.export.triton import TRITON_SETTINGS
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import Model, make_model
from treekit.serve.http.oip_routes import list_protocol_routes
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service
from treekit.testing import check_exporter

# ---------------------------------------------------------------- deploy

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "treekit.service").read_text(encoding="utf-8")
README = (DEPLOY / "README.md").read_text(encoding="utf-8")
YAMLS = ("kserve.yaml", "kserve-custom.yaml")


def serve_command() -> Command:
    command = main.get_command(Context(main), "serve")
    assert command is not None
    return command


def understood(arguments: list[str]) -> dict[str, Any]:
    """What `treekit serve` reads in these words; UsageError for a flag that it does not have."""
    command = serve_command()
    # click keeps the help option of a command from its first context, for later tests too
    context = Context(command, help_option_names=["-h", "--help"])
    command.parse_args(context, [*arguments])
    return dict(context.params)


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and rest of each line, continued lines joined, comments left out."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    lines = kept.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def of_container(name: str) -> list[str]:
    return [rest for word, rest in instructions(CONTAINERFILE) if word == name]


def unit_settings(section: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    inside = ""
    for line in UNIT.splitlines():
        if line.startswith("["):
            inside = line.strip("[]")
        elif inside == section and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def containers() -> Iterator[dict[str, Any]]:
    for name in YAMLS:
        for document in documents(name):
            spec = document["spec"]
            yield from spec.get("containers", ())
            yield from spec.get("predictor", {}).get("containers", ())


def commands() -> dict[str, list[str]]:
    """The words behind `treekit serve`, by where they stand."""
    found = {"Containerfile": json.loads(of_container("CMD")[0])}
    (start,) = unit_settings("Service")["ExecStart"]
    found["treekit.service"] = shlex.split(start)[2:]
    found |= {f"yaml {at}": one["args"] for at, one in enumerate(containers())}
    plain = README.replace("\\\n", " ")
    for at, line in enumerate(re.findall(r"^ *treekit serve (.*)$", plain, re.MULTILINE)):
        found[f"README {at}"] = shlex.split(line, comments=True)
    return found


def test_every_recipe_says_only_what_the_command_understands():
    given = commands()
    assert len(given) >= 5
    for where, words in given.items():
        read = understood(words)
        assert read["sources"], where
    flags = {option for parameter in serve_command().params for option in parameter.opts}
    page = README.partition("## Triton")[0].replace("`treekit export --to triton`", "")
    named = set(re.findall(r"`(--[a-z-]+)", page))
    assert "--allow-host" in named
    assert named <= flags
    settings = {f"--{one.name.replace('_', '-')}" for one in TRITON_SETTINGS}
    assert set(re.findall(r"^- .(--[a-z-]+)", README.partition("## Triton")[2], re.MULTILINE)) <= (
        settings
    )


def test_a_server_for_others_has_a_token_or_a_cluster_around_it():
    for where, words in commands().items():
        read = understood(words)
        if where in ("Containerfile", "yaml 0"):  # -p, or the cluster's own gate, decides
            continue
        assert read["host"] == "127.0.0.1" or read["token_file"], where


# ---------------------------------------------------------------- the container


def test_the_container_runs_as_nobody_and_without_a_shell():
    assert [rest.split()[0] for rest in of_container("FROM")] == [
        "docker.io/library/python:3.13-slim"
    ] * 2
    (user,) = of_container("USER")
    assert all(int(part) > 0 for part in user.split(":"))
    forms = [*of_container("RUN"), *of_container("CMD"), *of_container("ENTRYPOINT")]
    forms += [rest.partition("CMD")[2] for rest in of_container("HEALTHCHECK")]
    assert len(forms) == 6
    for form in forms:
        words = json.loads(form)
        assert all(isinstance(word, str) for word in words)
        assert words[0] not in ("sh", "bash", "/bin/sh")
        assert "-c" not in words or words[0].endswith("python")


def test_the_container_is_built_of_what_is_there():
    copied = [rest.split() for rest in of_container("COPY") if not rest.startswith("--from")]
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {word for rest in of_container("RUN") for word in json.loads(rest) if "[" in word}
    (extras,) = [re.fullmatch(r"/src\[(.*)\]", word)[1].split(",") for word in wanted]
    assert set(extras) <= set(project["project"]["optional-dependencies"])
    needed = {"README.md", "hatch_build.py", *project["project"]["license-files"], "templates"}
    assert needed <= {source for *sources, _ in copied for source in sources}


def test_both_stages_of_the_container_have_one_cache_for_one_kind_of_processor():
    told = [dict(word.split("=") for word in rest.split()) for rest in of_container("ENV")]
    assert len(told) == 2
    for name in ("NUMBA_CPU_NAME", "NUMBA_CACHE_DIR"):
        assert told[0][name] == told[1][name]
    assert told[0]["NUMBA_CPU_NAME"] == "generic"
    warm = json.loads(of_container("RUN")[-1])
    assert warm[1:] == ["warm-up", "serving"]


KEPT = """
import sys, tempfile
if sys.argv[1] == "read-only":
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")
    tempfile.TemporaryFile = refuse
import numba, kernel
print(kernel.add(1), sum(kernel.add.stats.cache_hits.values()))
"""


@pytest.mark.system
def test_machine_code_of_a_folder_that_cannot_be_written_is_used(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "from numba import njit\nfrom treekit.kernels.compile import enable_disk_cache\n"
        "@njit\ndef add(x):\n    return x + 41\nadd = enable_disk_cache(add)\n"
    )
    (tmp_path / "run.py").write_text(KEPT)
    cache = tmp_path / "cache"
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(cache), "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip

    def run(how: str) -> list[str]:
        command = [sys.executable, str(tmp_path / "run.py"), how]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=120
        ).stdout.split()

    assert run("writable") == ["42", "0"]
    before = sorted(cache.rglob("*"))
    assert run("read-only") == ["42", "1"]
    assert sorted(cache.rglob("*")) == before
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "not there")
    assert run("read-only")[0] == "42"


def test_kernels_of_all_usual_models_are_made_ahead():
    from treekit.warm_up import compile_for_serving

    assert compile_for_serving(["float32"]) == 8


# ---------------------------------------------------------------- one that runs


def small_model(path: Path) -> None:
    schema = Schema((Column("x"), Column("z")), classes=("no", "yes"))
    tree = build_tree(threshold(0, 0.5, leaf([3, 1]), leaf([0, 1])), schema)
    make_model(schema, [tree]).save(path)


@pytest.mark.system
def test_the_container_s_command_serves_and_is_found_healthy(tmp_path):
    serve_command()
    from tests.serving import ServerProcess

    small_model(tmp_path / "adult.treekit")
    words = [str(tmp_path) if word == "/models" else word for word in commands()["Containerfile"]]
    words[words.index("8080")] = "0"
    server = ServerProcess(*words, env={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        port = int(server.url.rpartition(":")[2].strip("/"))
        check = json.loads(of_container("HEALTHCHECK")[0].partition("CMD")[2])
        code = check[-1].replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        assert code != check[-1]
        healthy = [sys.executable, *check[1:-1], code]
        assert subprocess.run(healthy, timeout=30, check=False).returncode == 0
    finally:
        assert server.end() == 0
    gone = subprocess.run(healthy, timeout=30, check=False, capture_output=True)
    assert gone.returncode != 0


# ---------------------------------------------------------------- the unit


HARD = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "CapabilityBoundingSet": "",
    "RestrictNamespaces": "yes",
    "LockPersonality": "yes",
    "IPAddressDeny": "any",
    "IPAddressAllow": "localhost",
    "UMask": "0077",
}


def test_the_unit_lets_the_server_do_little_more_than_serve():
    settings = unit_settings("Service")
    assert {name: settings[name] for name in HARD} == {name: [HARD[name]] for name in HARD}
    assert "MemoryMax" in settings
    # numba compiles in memory: with it the server would die at its first request.
    assert "MemoryDenyWriteExecute" not in settings
    assert settings["Restart"] == ["on-failure"]


def test_the_unit_hands_the_token_over_and_waits_for_the_last_answers():
    settings = unit_settings("Service")
    (credential,) = settings["LoadCredential"]
    read = understood(commands()["treekit.service"])
    assert read["token_file"] == "${CREDENTIALS_DIRECTORY}/" + credential.partition(":")[0]
    assert float(settings["TimeoutStopSec"][0]) > read["max_seconds"]
    (environment,) = settings["Environment"]
    (folder,) = settings["CacheDirectory"]
    assert f"NUMBA_CACHE_DIR=%C/{folder}/" in environment


@pytest.mark.system
def test_systemd_accepts_the_unit_and_finds_it_little_exposed(tmp_path):
    need("systemd-analyze")
    path = tmp_path / "treekit.service"
    path.write_text(UNIT.replace("/opt/treekit/bin/treekit", sys.executable), encoding="utf-8")
    run = [["systemd-analyze", "verify", "--man=no", path]]
    run.append(["systemd-analyze", "security", "--offline=true", "--threshold=15", path])
    for command in run:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    verified = subprocess.run(run[0], capture_output=True, text=True, timeout=60, check=False)
    assert "treekit.service" not in verified.stderr  # no warning of the unit's own lines


# ---------------------------------------------------------------- KServe

# The fields of https://kserve.github.io/website/docs/reference/crd-api (pkg/apis/serving
# v1alpha1 and v1beta1) and of a Pod (core/v1) that the recipes use, and their types: what a
# cluster's own validation would refuse or drop is none of these.
PROBE = {
    "httpGet": {"path": str, "port": int},
    "initialDelaySeconds": int,
    "periodSeconds": int,
    "timeoutSeconds": int,
}
AMOUNTS = {"cpu": str, "memory": str}
CONTAINER = {
    "name": str,
    "image": str,
    "args": [str],
    "env": [{"name": str, "value": str}],
    "ports": [{"name": str, "containerPort": int, "protocol": str}],
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "privileged": bool,
        "readOnlyRootFilesystem": bool,
        "runAsNonRoot": bool,
        "capabilities": {"drop": [str]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
    "resources": {"requests": AMOUNTS, "limits": AMOUNTS},
}
KINDS: dict[tuple[str, str], Any] = {
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): {
        "annotations": {"prometheus.kserve.io/port": str, "prometheus.kserve.io/path": str},
        "supportedModelFormats": [{"name": str, "version": str, "autoSelect": bool}],
        "protocolVersions": [str],
        "containers": [CONTAINER],
    },
    ("serving.kserve.io/v1beta1", "InferenceService"): {
        "predictor": {
            "minReplicas": int,
            "maxReplicas": int,
            "model": {
                "modelFormat": {"name": str},
                "protocolVersion": str,
                "runtime": str,
                "storageUri": str,
            },
            "containers": [CONTAINER],
            "volumes": [{"name": str, "secret": {"secretName": str, "defaultMode": int}}],
            "securityContext": {"fsGroup": int},
        }
    },
}


def check_fields(value: Any, schema: Any, where: str) -> None:
    if isinstance(schema, dict):
        assert isinstance(value, dict), where
        assert set(value) <= set(schema), f"{where}: {set(value) - set(schema)}"
        for key, inner in value.items():
            check_fields(inner, schema[key], f"{where}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), where
        for at, inner in enumerate(value):
            check_fields(inner, schema[0], f"{where}[{at}]")
    else:
        assert type(value) is schema, f"{where}: {value!r} is no {schema.__name__}"


@pytest.mark.parametrize("name", YAMLS)
def test_documents_have_the_fields_of_kserve_and_no_others(name):
    for document in documents(name):
        assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
        kind = document["apiVersion"], document["kind"]
        check_fields(document["spec"], KINDS[kind], ".".join(kind))


def test_the_service_asks_for_what_the_runtime_has():
    runtime, service = documents("kserve.yaml")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    formats = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"]["name"] in [one["name"] for one in formats]
    assert [one["name"] for one in formats if one.get("autoSelect")] == ["treekit"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert "containers" not in service["spec"]["predictor"]  # one predictor, not two


def test_the_custom_predictor_tells_its_storage_and_protocol_by_environment():
    (document,) = documents("kserve-custom.yaml")
    (container,) = document["spec"]["predictor"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"]}
    assert set(told) == {"STORAGE_URI", "PROTOCOL"}
    assert told["PROTOCOL"] == "v2"
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    (volume,) = document["spec"]["predictor"]["volumes"]
    assert understood(container["args"])["token_file"] == f"{mounts[volume['name']]}/token"
    group = document["spec"]["predictor"]["securityContext"]["fsGroup"]
    assert of_container("USER") == [f"{group}:{group}"]


def test_containers_of_a_cluster_are_probed_where_they_listen_and_write_nothing():
    paths = {route.path for route in list_protocol_routes(Service(Repository([])))}
    for container in containers():
        assert container["name"] == "kserve-container"
        read = understood(container["args"])
        assert list(read["sources"]) == ["/mnt/models"]  # where KServe puts them
        (port,) = container["ports"]
        assert read["port"] == port["containerPort"]
        for probe, path in (
            ("readinessProbe", "/v2/health/ready"), ("livenessProbe", "/v2/health/live"),
        ):  # fmt: skip
            assert container[probe]["httpGet"] == {"path": path, "port": read["port"]}
            assert path in paths
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


# ---------------------------------------------------------------- the page about them


def test_the_page_names_every_recipe():
    for path in DEPLOY.iterdir():
        assert path.name == "README.md" or f"]({path.name})" in README
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (DEPLOY / link).exists(), link


# ---------------------------------------------------------------- export triton
# A model's folder for Triton: the schema it is written in, the graph it speaks of, its place.

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
def test_the_configuration_is_of_the_schema_and_fits_the_graph(
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


def test_settings_are_written_where_the_schema_has_them(tmp_path):
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


def test_classes_are_named_in_a_file_that_the_probabilities_speak_of(tmp_path):
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


def test_hostile_names_of_columns_are_only_data(tmp_path):
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
def test_the_folder_or_its_main_file_may_be_named(tmp_path, output):
    (config, *_) = export(MODEL, "triton", tmp_path / output)
    assert config.parent == tmp_path / output.removesuffix("/config.pbtxt")
    assert config_of(config).name == config.parent.name


@pytest.mark.parametrize("name", ["adult.onnx", "adult.c", ""])
def test_a_folder_is_not_called_as_a_file_of_another_target(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match="cannot be a model folder"):
        export(MODEL, "triton", name)
    assert list(tmp_path.iterdir()) == []


def test_a_second_version_stands_beside_the_first(tmp_path):
    export(MODEL, "triton", tmp_path / "m")
    export(MODEL, "triton", tmp_path / "m", version=2)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert files == ["m/1/model.onnx", "m/2/model.onnx", "m/config.pbtxt", "m/labels.txt"]


def test_what_cannot_be_written_leaves_no_folders_behind(tmp_path):
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
def test_a_folder_s_exporter_cannot_write_outside_of_it(tmp_path, name):
    exporter = Exporter("sly", "/a", lambda *_: {"m/a": b"", name: b""})
    with pytest.raises(PluginError, match=r"'sly' returned the file name .* in the folder 'm'"):
        export(MODEL, exporter, tmp_path / "m")
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("suffix", ["a", "", "/a/b", ".a/b"])
def test_a_suffix_is_an_ending_or_one_file_of_a_folder(suffix):
    record = Exporter("sly", suffix, lambda model, name: {})
    with pytest.raises(PluginError, match="has suffix"):
        check_record(record, find_kind(record))


@pytest.mark.matrix
def test_the_exporter_keeps_the_laws_of_exporters():
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


def test_the_command_writes_a_repository_that_verify_proves(tmp_path):
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


def test_a_model_file_in_the_way_is_not_written_over(tmp_path):
    export_triton_small_model().save(tmp_path / "config.pbtxt")
    before = (tmp_path / "config.pbtxt").read_bytes()
    told = run("export", tmp_path / "config.pbtxt", "--to", "triton", "-o", tmp_path, code=2)
    assert "input of this command" in told
    assert (tmp_path / "config.pbtxt").read_bytes() == before
