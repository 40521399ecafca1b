"""The recipes of examples/deploy are consistent and use options of `treekit serve`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Command, Context

from tests.runtimes import need
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.export.triton import TRITON_SETTINGS
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import make_model
from treekit.serve.http.oip_routes import list_protocol_routes
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service

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


def test_every_deployment_recipe_uses_only_known_options():
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


def test_servers_on_other_hosts_require_a_token():
    for where, words in commands().items():
        read = understood(words)
        if where in ("Containerfile", "yaml 0"):  # -p, or the cluster's own gate, decides
            continue
        assert read["host"] == "127.0.0.1" or read["token_file"], where


# ---------------------------------------------------------------- the container


def test_the_container_runs_without_root_and_without_a_shell():
    (base,) = {rest.split()[0] for rest in of_container("FROM")}
    assert re.fullmatch(r"docker\.io/library/python:3\.13\S*-slim\S*@sha256:[0-9a-f]{64}", base)
    (user,) = of_container("USER")
    assert all(int(part) > 0 for part in user.split(":"))
    forms = [*of_container("RUN"), *of_container("CMD"), *of_container("ENTRYPOINT")]
    assert len(forms) == 4
    for form in forms:
        words = json.loads(form)
        assert all(isinstance(word, str) for word in words)
        assert words[0] not in ("sh", "bash", "/bin/sh")
        assert "-c" not in words or words[0].endswith("python")


def test_container_copies_existing_files_only():
    copied = [rest.split() for rest in of_container("COPY") if not rest.startswith("--from")]
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime = tomllib.loads((ROOT / "tools/runtime/pyproject.toml").read_text(encoding="utf-8"))
    wanted = {word for rest in of_container("RUN") for word in json.loads(rest) if "[" in word}
    (extras,) = [re.fullmatch(r"/src/tools/runtime\[(.*)\]", word)[1].split(",") for word in wanted]
    assert set(extras) <= set(runtime["project"]["optional-dependencies"])
    for key in ("serve", "grpc"):  # the same libraries as in the whole
        own, whole = (one["project"]["optional-dependencies"][key] for one in (runtime, project))
        assert [name.replace("treekit-runtime", "treekit-ml") for name in own] == whole
    assert set(runtime["project"]["dependencies"]) <= set(project["project"]["dependencies"])
    needed = {"README.md", "hatch_build.py", *project["project"]["license-files"], "templates"}
    assert needed <= {source for *sources, _ in copied for source in sources}


# ---------------------------------------------------------------- one that runs


def small_model(path: Path) -> None:
    schema = Schema((Column("x"), Column("z")), classes=("no", "yes"))
    tree = build_tree(threshold(0, 0.5, leaf([3, 1]), leaf([0, 1])), schema)
    make_model(schema, [tree]).save(path)


@pytest.mark.system
def test_container_command_serves_and_passes_the_health_check(tmp_path):
    serve_command()
    from tests.serving import ServerProcess

    small_model(tmp_path / "adult.treekit")
    words = [str(tmp_path) if word == "/models" else word for word in commands()["Containerfile"]]
    words[words.index("8080")] = "0"
    server = ServerProcess(*words, env={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        port = int(server.url.rpartition(":")[2].strip("/"))
        check = json.loads(of_container("HEALTHCHECK")[0].partition("CMD")[2])
        code = check[-1].replace("127.0.0.1/8080", f"127.0.0.1/{port}")
        assert code != check[-1]
        healthy = [*check[:-1], code]
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


def test_systemd_unit_restricts_the_server():
    settings = unit_settings("Service")
    assert {name: settings[name] for name in HARD} == {name: [HARD[name]] for name in HARD}
    assert "MemoryMax" in settings
    # numba compiles in memory: with it the server would die at its first request.
    assert "MemoryDenyWriteExecute" not in settings
    assert settings["Restart"] == ["on-failure"]


def test_the_unit_passes_the_token_and_waits_for_the_last_responses():
    settings = unit_settings("Service")
    (credential,) = settings["LoadCredential"]
    read = understood(commands()["treekit.service"])
    assert read["token_file"] == "${CREDENTIALS_DIRECTORY}/" + credential.partition(":")[0]
    assert float(settings["TimeoutStopSec"][0]) > read["max_seconds"]
    (environment,) = settings["Environment"]
    (folder,) = settings["CacheDirectory"]
    assert f"NUMBA_CACHE_DIR=%C/{folder}/" in environment


@pytest.mark.system
def test_systemd_accepts_the_unit_with_a_low_exposure_score(tmp_path):
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
def test_kserve_documents_have_only_known_fields(name):
    for document in documents(name):
        assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
        kind = document["apiVersion"], document["kind"]
        check_fields(document["spec"], KINDS[kind], ".".join(kind))


def test_kserve_service_requests_format_and_protocol_of_the_runtime():
    runtime, service = documents("kserve.yaml")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    formats = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"]["name"] in [one["name"] for one in formats]
    assert [one["name"] for one in formats if one.get("autoSelect")] == ["treekit"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert "containers" not in service["spec"]["predictor"]  # one predictor, not two


def test_the_custom_predictor_passes_storage_and_protocol_by_environment():
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


def test_cluster_containers_have_valid_probes_and_a_read_only_filesystem():
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


def test_readme_names_every_deployment_recipe():
    for path in DEPLOY.iterdir():
        assert path.name == "README.md" or f"]({path.name})" in README
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (DEPLOY / link).exists(), link
