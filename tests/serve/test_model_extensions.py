"""Statistics and configuration of models, as Triton's clients read them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.serving import save_models, service_of
from tests.serving_gate import ask, make_gate_app


@pytest.fixture
def app(tmp_path: Path) -> Any:
    save_models(tmp_path)
    return make_gate_app(service_of(tmp_path))


def names_of(app: Any) -> list[str]:
    return [entry["name"] for entry in ask(app, "POST", "/v2/repository/index").json()]


def test_extensions_are_listed(app: Any) -> None:
    extensions = ask(app, "GET", "/v2").json()["extensions"]
    assert {"statistics", "model_configuration"} <= set(extensions)


def test_statistics_count_requests_rows_and_time(app: Any) -> None:
    name = names_of(app)[0]
    [before] = ask(app, "GET", f"/v2/models/{name}/stats").json()["model_stats"]
    assert (before["inference_count"], before["last_inference"]) == (0, 0)
    columns = ask(app, "GET", "/models").json()
    columns = next(own["columns"] for own in columns if own["name"] == name)
    row = {own["name"]: own["levels"][0] if own["levels"] else 0 for own in columns}
    for rows in (1, 3):
        answer = ask(app, "POST", f"/predict?model={name}", json=[row] * rows)
        assert answer.status_code == 200, answer.text
    [after] = ask(app, "GET", f"/v2/models/{name}/stats").json()["model_stats"]
    assert (after["execution_count"], after["inference_count"]) == (2, 4)
    assert abs(after["last_inference"] / 1e3 - time.time()) < 60
    success = after["inference_stats"]["success"]
    assert success == after["inference_stats"]["compute_infer"]
    assert success["count"] == 2
    assert 0 < success["ns"] < 60e9
    assert after["inference_stats"]["fail"] == {"count": 0, "ns": 0}
    listed = ask(app, "GET", "/v2/models/stats").json()["model_stats"]
    assert {own["name"] for own in listed} == set(names_of(app))
    assert after in listed
    version = f"/v2/models/{name}/versions/{after['version']}"
    assert ask(app, "GET", f"{version}/stats").json()["model_stats"] == [after]
    assert ask(app, "GET", "/v2/models/nobody/stats").status_code == 404


def test_statistics_count_failed_requests_of_a_model_and_no_others(app: Any) -> None:
    name, other = names_of(app)[:2]

    def fail(path: str, status: int, **request: Any) -> None:
        assert ask(app, "POST", path, **request).status_code == status

    for expected in (1, 2):
        fail(f"/predict?model={name}", 400, json=[{"no": 1}])
        fail(f"/explain?model={name}", 400, json={"row": {"no": 1}})
        fail(f"/v2/models/{name}/infer", 400, content=b"{")
        # Of no model, or not admitted.
        fail("/v2/models/nobody/infer", 404, content=b"{")
        fail(f"/v2/models/{name}/infer", 403, content=b"{", host="evil.example")
        assert ask(app, "GET", f"/v2/models/{name}").status_code == 200
        [found] = ask(app, "GET", f"/v2/models/{name}/stats").json()["model_stats"]
        failed = found["inference_stats"]["fail"]
        assert failed["count"] == 3 * expected
        assert 0 < failed["ns"] < 60e9
        assert found["inference_stats"]["success"] == {"count": 0, "ns": 0}
        assert (found["execution_count"], found["last_inference"]) == (0, 0)
    [found] = ask(app, "GET", f"/v2/models/{other}/stats").json()["model_stats"]
    assert found["inference_stats"]["fail"] == {"count": 0, "ns": 0}


def test_configuration_has_the_tensors_of_the_metadata_without_rows(app: Any) -> None:
    for name in names_of(app):
        config = ask(app, "GET", f"/v2/models/{name}/config").json()
        metadata = ask(app, "GET", f"/v2/models/{name}").json()
        assert config["name"] == name
        assert config["max_batch_size"] > 0
        assert not config["model_transaction_policy"]["decoupled"]
        for kind in ("input", "output"):
            pairs = zip(config[kind], metadata[f"{kind}s"], strict=True)
            for own, given in pairs:
                shape = own["reshape"]["shape"] if "reshape" in own else own["dims"]
                assert [-1, *shape] == given["shape"]
                assert own["dims"]
                assert own["data_type"] == f"TYPE_{given['datatype']}".replace("BYTES", "STRING")
    assert ask(app, "GET", "/v2/models/nobody/config").status_code == 404


def test_metadata_of_a_float64_model_warns_of_float32(app: Any) -> None:
    notes = {
        name: ask(app, "GET", f"/v2/models/{name}").json()["parameters"].get("precision", "")
        for name in names_of(app)
    }
    assert "send FP64" in notes.pop("wide")
    assert not any(notes.values())
