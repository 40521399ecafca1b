"""The repository of served models: finding, loading, replacing, refusing and unloading."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import http.client
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.serving import infer_body, save_forest, server_process, server_thread
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelFileError
from treekit.model.builder import build_tree, leaf
from treekit.model.model import make_model
from treekit.model.model_file import load, save
from treekit.serve.errors import InvalidRequestError, NotFoundError, UnavailableError
from treekit.serve.models.model_copies import ModelCopies
from treekit.serve.models.repository import Change, Repository
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor

# ---------------------------------------------------------------- serve repository


class Text(Served):
    """A model that is the text of its file."""

    platform = "text"
    inputs = outputs = default_outputs = ()

    def __init__(self, name: str, version: str, digest: str, text: str) -> None:
        self.name, self.version, self.digest, self.text = name, version, digest, text

    def parse_inputs(self, tensors: Sequence[Tensor], absent: str = "error") -> Any:
        return []

    def compute_outputs(self, batch: Any, wanted: Sequence[str]) -> list[Tensor]:
        return []


class Reader:
    """Reads texts, refuses those that begin with "bad", and keeps what it read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.meanwhile = lambda: None

    def __call__(
        self, data: bytes, path: Path, name: str, version: str | None, digest: str
    ) -> Served:
        text = data.decode()
        self.read.append(text)
        self.meanwhile()
        if text.startswith("bad"):
            raise ModelFileError(f"{path} holds {text!r}")
        return Text(name, version or digest[:12], digest, text)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def models(tmp_path: Path, reader: Reader, clock: Clock) -> Repository:
    return Repository([tmp_path], read=reader, clock=clock)


def write(path: Path, text: str) -> None:
    """Put a file in its place in one step, as tools do that do it right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.replace(path)


def text_of(models: Repository, name: str | None = None, version: str | None = None) -> str:
    served = models.get(name, version)
    assert isinstance(served, Text)
    return served.text


def what(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.name, change.what) for change in changes]


# ------------------------------------------------------------------- finding


def test_files_and_version_folders_are_found_as_models(tmp_path, models):
    write(tmp_path / "a.treekit", "a")
    write(tmp_path / "b.treekit", "b")
    write(tmp_path / "b.onnx", "no model")
    write(tmp_path / "c" / "2" / "model.treekit", "c2")
    write(tmp_path / "c" / "10" / "model.treekit", "c10")
    write(tmp_path / "c" / "1" / "other.treekit", "no model")
    write(tmp_path / "c" / "03" / "model.treekit", "Triton passes leading zeros over")
    write(tmp_path / "c" / "new" / "model.treekit", "no number")
    write(tmp_path / "notes.txt", "no model")
    write(tmp_path / ".hidden.treekit", "no model")
    assert sorted(what(models.refresh())) == [("a", "loaded"), ("b", "loaded")] + 2 * [
        ("c", "loaded")
    ]
    assert text_of(models, "a") == "a"
    assert text_of(models, "b") == "b"
    assert models.versions("c") == ("10", "2")
    assert text_of(models, "c") == "c10"
    assert text_of(models, "c", "2") == "c2"
    assert [entry.name for entry in models.index()] == ["a", "b", "c", "c"]


def test_version_of_a_model_file_is_its_digest(tmp_path, reader):
    write(tmp_path / "a.treekit", "a")
    models = Repository([tmp_path / "a.treekit"], read=reader)
    models.refresh()
    assert models.get().version == "ca978112ca1b"  # sha256 of "a"
    assert models.get() is models.get("a") is models.get("a", "ca978112ca1b")


def test_unknown_names_and_versions_are_reported_with_the_known_ones(tmp_path, models):
    write(tmp_path / "wine.treekit", "w")
    write(tmp_path / "iris" / "1" / "model.treekit", "i")
    models.refresh()
    with pytest.raises(NotFoundError, match=r"no model 'wime'.*'wine'"):
        models.get("wime")
    with pytest.raises(NotFoundError, match="no version '2'; it has: 1"):
        models.get("iris", "2")
    with pytest.raises(InvalidRequestError, match="give one of 'iris', 'wine'"):
        models.get()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.treekit", "a/1/model.treekit"),
        ("a.treekit", "more/../../twin/a.treekit"),
    ],
)
def test_two_files_of_one_name_are_refused_at_the_start(tmp_path, reader, one, other):
    folder = tmp_path / "folder"
    write(folder / one, "one")
    (folder / "more").mkdir()
    second = (folder / other).resolve()
    write(second, "other")
    sources = [folder] if second.is_relative_to(folder) else [folder, second]
    with pytest.raises(DataError, match="both model 'a'; rename one"):
        Repository(sources, read=reader).refresh()
    assert not reader.read


def test_later_file_of_the_same_name_does_not_replace_the_model(tmp_path, models):
    write(tmp_path / "a.treekit", "first")
    models.refresh()
    write(tmp_path / "a" / "1" / "model.treekit", "second")
    write(tmp_path / "b.treekit", "b")
    with pytest.raises(DataError, match="both model 'a'"):
        models.refresh()
    assert text_of(models, "b") == "b"  # the others are looked at
    assert models.versions("a")
    (tmp_path / "a" / "1" / "model.treekit").unlink()
    assert models.refresh() == []
    assert text_of(models, "a") == "first"


# ------------------------------------------------------------------ changing


def test_changed_file_replaces_its_model_except_for_running_requests(tmp_path, models):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    held = models.get("a")
    write(tmp_path / "a.treekit", "two")
    assert what(models.refresh()) == [("a", "replaced")]
    assert text_of(models, "a") == "two"
    assert isinstance(held, Text)
    assert held.text == "one"


def test_file_with_unchanged_content_is_not_reloaded(tmp_path, models, reader):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    os.utime(tmp_path / "a.treekit", (1, 1))
    assert models.refresh() == []
    write(tmp_path / "a.treekit", "one")
    assert models.refresh() == []
    assert reader.read == ["one"]


def test_invalid_file_keeps_the_old_model_and_is_read_once(tmp_path, models, reader):
    write(tmp_path / "a.treekit", "good")
    models.refresh()
    write(tmp_path / "a.treekit", "bad")
    [change] = models.refresh()
    assert (change.what, change.version) == ("kept", models.get("a").version)
    assert "holds 'bad'" in change.reason
    [entry] = models.index()
    assert entry.state == "READY"
    assert "holds 'bad'" in entry.reason
    assert models.ready
    for _ in range(3):
        assert models.refresh() == []
    assert reader.read == ["good", "bad"]
    write(tmp_path / "a.treekit", "bad again")
    assert what(models.refresh()) == [("a", "kept")]
    write(tmp_path / "a.treekit", "good")
    assert what(models.refresh()) == [("a", "replaced")]
    assert models.index()[0].reason == ""
    assert reader.read == ["good", "bad", "bad again"]  # what serves need not be read


def test_change_within_one_clock_tick_of_the_file_system_is_detected(
    tmp_path, models, clock, monkeypatch
):
    path = tmp_path / "a.treekit"
    path.write_text("one")
    frozen = path.stat()
    monkeypatch.setattr(
        "treekit.serve.models.repository._make_stamp",
        lambda found: (frozen.st_ino, frozen.st_mtime_ns, 3),
    )
    models.refresh()
    path.write_text("two")
    assert what(models.refresh()) == [("a", "replaced")]
    clock.now = 2.0
    models.refresh()
    path.write_text("six")  # a clock that stands still for more than 2 s is none
    assert models.refresh() == []


def test_unchanged_old_file_is_not_reopened(tmp_path, models, clock, monkeypatch):
    (tmp_path / "a.treekit").write_text("one")
    models.refresh()
    clock.now = 2.0
    models.refresh()
    monkeypatch.setattr(
        "treekit.serve.models.repository.read_file", lambda path: pytest.fail("opened")
    )
    assert models.refresh() == []


def test_file_changed_while_it_is_read_is_reread(tmp_path, models, reader, monkeypatch):
    path = tmp_path / "a.treekit"
    write(path, "one")
    reader.meanwhile = lambda: write(path, f"{len(reader.read)} is new")
    models.refresh()
    assert text_of(models, "a") == "one"  # what was read, with the digest of it
    assert models.get("a").digest == hashlib.sha256(b"one").hexdigest()
    reader.meanwhile = lambda: None
    assert what(models.refresh()) == [("a", "replaced")]
    assert text_of(models, "a") == "1 is new"
    real = os.fstat

    def changing(number: int) -> os.stat_result:
        with path.open("a") as stream:
            stream.write("!")
        return real(number)

    write(path, "two")
    with monkeypatch.context() as patches:
        patches.setattr(os, "fstat", changing)
        assert what(models.refresh()) == [("a", "kept")]
    assert "changes while it is read" in models.index()[0].reason
    assert text_of(models, "a") == "1 is new"
    assert what(models.refresh()) == [("a", "replaced")]
    assert text_of(models, "a").startswith("two!")


def test_symlink_swapped_while_it_is_read_is_reread(tmp_path, models, reader):
    for text in ("one", "two"):
        write(tmp_path / f".{text}" / "a.treekit", text)
    link = tmp_path / "a.treekit"

    def point(text: str) -> None:
        (tmp_path / ".new").symlink_to(tmp_path / f".{text}" / "a.treekit")
        (tmp_path / ".new").replace(link)

    def swapped(*given: Any) -> Served:
        point("two")
        try:
            return reader(*given)
        finally:
            point("one")

    point("one")
    models = Repository([tmp_path], read=swapped)
    models.refresh()
    assert text_of(models, "a") == "one"


def test_kubernetes_config_map_update_is_loaded(tmp_path, models):
    """``a.treekit`` -> ``..data/a.treekit``, and ``..data`` is swapped by a rename."""
    for number in (1, 2):
        write(tmp_path / f"..2026_{number}" / "a.treekit", f"text {number}")
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "a.treekit").symlink_to("..data/a.treekit")
    assert what(models.refresh()) == [("a", "loaded")]
    (tmp_path / "..data_tmp").symlink_to("..2026_2")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    (tmp_path / "..2026_1" / "a.treekit").unlink()
    assert what(models.refresh()) == [("a", "replaced")]
    assert text_of(models, "a") == "text 2"


# --------------------------------------------------------------- disappearing


def test_a_file_removed_from_a_folder_removes_its_model(tmp_path, models):
    write(tmp_path / "a.treekit", "a")
    write(tmp_path / "b.treekit", "b")
    models.refresh()
    (tmp_path / "a.treekit").rename(tmp_path / "c.treekit")
    assert what(models.refresh()) == [("a", "removed"), ("c", "loaded")]
    with pytest.raises(NotFoundError):
        models.get("a")
    assert models.ready


def test_patient_refresh_waits_before_removing_a_missing_file(tmp_path, models):
    write(tmp_path / "a.treekit", "one")
    models.refresh(patient=True)
    (tmp_path / "a.treekit").unlink()
    assert models.refresh(patient=True) == []
    assert text_of(models, "a") == "one"
    write(tmp_path / "a.treekit", "two")
    assert what(models.refresh(patient=True)) == [("a", "replaced")]
    (tmp_path / "a.treekit").unlink()
    assert models.refresh(patient=True) == []
    assert what(models.refresh(patient=True)) == [("a", "removed")]


def test_removed_version_is_replaced_by_the_previous_one(tmp_path, models):
    for version in ("1", "2"):
        write(tmp_path / "a" / version / "model.treekit", version)
    models.refresh()
    assert text_of(models, "a") == "2"
    (tmp_path / "a" / "2" / "model.treekit").unlink()
    models.refresh()
    assert text_of(models, "a") == "1"
    with pytest.raises(NotFoundError, match="it has: 1"):
        models.get("a", "2")


def test_missing_file_given_by_name_is_reported_and_its_model_keeps_serving(tmp_path, reader):
    path = tmp_path / "a.treekit"
    write(path, "one")
    models = Repository([path], read=reader)
    models.refresh()
    path.unlink()
    assert [change.what for change in models.refresh()] == ["kept"]
    assert models.refresh() == []  # told once
    assert text_of(models) == "one"
    assert "there is no model file" in models.index()[0].reason
    write(path, "one")
    assert what(models.refresh()) == [("a", "replaced")]
    assert models.index()[0].reason == ""


def test_missing_folder_keeps_its_models_serving(tmp_path, reader):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here / "a.treekit", "a")
    write(there / "b.treekit", "b")
    models = Repository([there, here], read=reader)
    models.refresh()
    there.rename(tmp_path / "away")
    write(here / "a.treekit", "new")
    with pytest.raises(OSError, match="there"):
        models.refresh()
    assert text_of(models, "a") == "new"
    assert models.get("b").version


def test_file_without_read_permission_is_retried(tmp_path, models, monkeypatch):
    write(tmp_path / "a.treekit", "a")
    (tmp_path / "a.treekit").chmod(0)
    if os.geteuid() == 0:  # root reads everything

        def refuse(self: Path, *args: str) -> object:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "open", refuse)
    assert what(models.refresh()) == [("a", "refused")]
    assert models.refresh() == []
    monkeypatch.undo()
    (tmp_path / "a.treekit").chmod(0o600)
    assert what(models.refresh()) == [("a", "loaded")]


def test_an_unreadable_file_is_reported_once_and_retried_at_each_scan(
    tmp_path, models, monkeypatch
):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    real, tried = Path.open, []

    def refuse(self: Path, *args: str) -> object:
        tried.append(self)
        raise PermissionError(13, "Permission denied", str(self))

    write(tmp_path / "a.treekit", "two")
    monkeypatch.setattr(Path, "open", refuse)
    assert what(models.refresh()) == [("a", "kept")]
    assert models.refresh() == []
    assert len(tried) == 2
    assert "Permission denied" in models.index()[0].reason
    monkeypatch.setattr(Path, "open", real)
    assert what(models.refresh()) == [("a", "replaced")]


# ------------------------------------------------------------------ slow files


@pytest.fixture
def slow(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Files whose text begins with "slow" are read when this event is set."""
    monkeypatch.setattr("treekit.serve.models.repository._READING_SECONDS", 0.2)
    event = threading.Event()

    def wait_if_slow() -> None:
        if threading.current_thread().name == "treekit-read":
            text = reader.read[-1]
            assert not text.startswith("slow") or event.wait(60)

    reader.meanwhile = wait_if_slow
    yield event
    event.set()


def refresh_until(models: Repository, expected: list[tuple[str, str]]) -> None:
    changes: list[Change] = []
    stop = time.monotonic() + 30
    while len(changes) < len(expected) and time.monotonic() < stop:
        changes += models.refresh(patient=True)
    assert sorted(what(changes)) == sorted(expected)


def test_slow_file_does_not_delay_others(tmp_path, models, slow):
    write(tmp_path / "c.treekit", "c")
    models.refresh()
    for name in ("a", "b"):
        write(tmp_path / f"{name}.treekit", f"slow {name}")
    write(tmp_path / "d.treekit", "d")
    refresh_until(models, [("d", "loaded")])
    write(tmp_path / "c.treekit", "new")
    refresh_until(models, [("c", "replaced")])
    assert text_of(models, "c") == "new"
    reasons = {entry.name: entry.reason for entry in models.index()}
    assert reasons == dict.fromkeys("ab", "its file is still being read") | dict.fromkeys("cd", "")
    with pytest.raises(UnavailableError, match="'a' is not loaded: its file is still being read"):
        models.get("a")
    assert models.ready
    assert what(models.load("c")) == [("c", "replaced")]
    slow.set()
    refresh_until(models, [("a", "loaded"), ("b", "loaded")])
    assert text_of(models, "b") == "slow b"
    assert models.refresh(patient=True) == []


def test_a_slow_version_keeps_the_previous_one_until_it_is_read(tmp_path, models, slow):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    write(tmp_path / "a.treekit", "slow two")
    assert models.refresh(patient=True) == []
    assert text_of(models, "a") == "one"
    write(tmp_path / "a.treekit", "three")  # is read after what is being read
    slow.set()
    refresh_until(models, [("a", "replaced"), ("a", "replaced")])
    assert text_of(models, "a") == "three"


def test_file_removed_or_unloaded_while_it_is_read_is_not_served(tmp_path, models, slow):
    write(tmp_path / "c.treekit", "c")
    models.refresh()
    for name in ("a", "b"):
        write(tmp_path / f"{name}.treekit", f"slow {name}")
    models.refresh(patient=True)
    models.unload("a")
    (tmp_path / "b.treekit").unlink()
    refresh_until(models, [("b", "removed")])
    slow.set()
    time.sleep(0.1)
    assert models.refresh(patient=True) == []
    assert list(models._table.models) == ["c"]
    assert what(models.load("a")) == [("a", "loaded")]


def test_a_request_to_load_a_slow_file_does_not_delay_others(tmp_path, models, slow):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    write(tmp_path / "a.treekit", "slow")
    loaded: list[Change] = []
    request = threading.Thread(target=lambda: loaded.extend(models.load("a")))
    request.start()
    write(tmp_path / "b.treekit", "b")
    refresh_until(models, [("b", "loaded")])
    assert not loaded
    assert text_of(models, "a") == "one"
    slow.set()
    request.join(30)
    assert text_of(models, "a") == "slow"
    # Whichever of the two completes the reading reports it.
    assert what(loaded) in ([("a", "replaced")], [])


@pytest.mark.parametrize("name", ["\u2028", "\t", " \n", "\u00a0"])
def test_model_with_an_invalid_column_name_is_refused(tmp_path, name):
    schema = Schema((Column("x"), Column(name)), classes=("a", "b"))
    save(make_model(schema, [build_tree(leaf([1, 2]), schema)]), tmp_path / "m.treekit")
    repository = Repository([tmp_path])
    assert what(repository.refresh()) == [("m", "refused")]
    expected = f"the name of column 2 is {name!r}, only white space; rename it"
    assert expected in repository.index()[0].reason


def test_a_required_file_keeps_the_server_unready_while_it_is_read_again(tmp_path, models, slow):
    write(tmp_path / "a.treekit", "bad")
    write(tmp_path / "b.treekit", "b")
    models.refresh()
    write(tmp_path / "a.treekit", "slow")
    models.refresh(patient=True)
    assert not models.ready
    assert "holds 'bad'" in models.index()[0].reason
    slow.set()
    refresh_until(models, [("a", "loaded")])
    assert models.ready


def test_file_that_fails_again_is_not_shown_as_loading(tmp_path, models, slow, monkeypatch):
    write(tmp_path / "a.treekit", "a")
    real = Path.open

    def fail(self: Path, *given: Any) -> Any:
        if self.name == "a.treekit":
            assert threading.current_thread().name != "treekit-read" or slow.wait(60)
            raise OSError(5, "Input/output error")
        return real(self, *given)

    monkeypatch.setattr(Path, "open", fail)
    models.refresh()
    for _ in range(3):
        slow.clear()
        models.refresh(patient=True)
        slow.set()
        wait_until(lambda: all(own.done() for own in models._list_readings("a")))
        models.refresh(patient=True)
        assert "Input/output error" in models.index()[0].reason
        assert not models.ready


def test_few_slow_files_are_read_at_a_time(tmp_path, models, reader, slow):
    models.refresh()
    for number in range(40):
        write(tmp_path / f"m{number}.treekit", f"slow {number}")
    for _ in range(3):
        models.refresh(patient=True)
    assert len(reader.read) < 10
    slow.set()
    refresh_until(models, [(f"m{number}", "loaded") for number in range(40)])


def test_a_request_to_load_waits_for_its_time_and_a_later_one_joins_it(
    tmp_path, models, reader, slow
):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    write(tmp_path / "a.treekit", "slow")
    for _ in range(3):
        with pytest.raises(UnavailableError, match="its file is still being read; ask again"):
            models.load("a", 0.01)
    assert reader.read == ["one", "slow"]
    slow.set()
    assert what(models.load("a")) == [("a", "replaced")]
    assert reader.read == ["one", "slow"]


# ------------------------------------------------------------------ readiness


def test_repository_is_not_ready_without_a_model(tmp_path, models):
    assert not models.ready
    models.refresh()
    assert not models.ready
    write(tmp_path / "a.treekit", "a")
    models.refresh()
    assert models.ready


@pytest.mark.parametrize("text", ["slow", "bad"])
def test_an_empty_folder_is_not_ready_before_its_first_model_is_loaded(
    tmp_path, models, slow, text
):
    models.refresh()
    write(tmp_path / "a.treekit", text)
    models.refresh(patient=True)
    assert not models.ready
    slow.set()
    write(tmp_path / "b.treekit", "b")
    refresh_until(models, [("a", "loaded"), ("b", "loaded")][text == "bad" :])
    assert models.ready


def test_invalid_file_at_startup_makes_the_server_not_ready(tmp_path, models):
    write(tmp_path / "a.treekit", "bad")
    write(tmp_path / "b.treekit", "b")
    models.refresh()
    assert text_of(models, "b") == "b"
    assert not models.ready
    with pytest.raises(UnavailableError, match=r"not loaded: .*holds 'bad'"):
        models.get("a")
    write(tmp_path / "a.treekit", "good")
    models.refresh()
    assert models.ready


def test_later_invalid_file_does_not_stop_other_models(tmp_path, models):
    write(tmp_path / "b.treekit", "b")
    models.refresh()
    write(tmp_path / "a.treekit", "bad")
    assert what(models.refresh()) == [("a", "refused")]
    assert models.ready
    assert models.index()[0].state == "UNAVAILABLE"


# ---------------------------------------------------------- load and unload


def test_unloaded_model_is_not_served_until_it_is_loaded(tmp_path, models):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    assert what(models.unload("a")) == [("a", "unloaded")]
    write(tmp_path / "a.treekit", "two")
    assert models.refresh() == []
    with pytest.raises(UnavailableError, match="not loaded"):
        models.get("a")
    assert [(entry.state, entry.reason) for entry in models.index()] == [
        ("UNAVAILABLE", "unloaded")
    ]
    assert models.ready
    assert what(models.load("a")) == [("a", "loaded")]
    assert text_of(models, "a") == "two"


def test_load_rereads_an_unchanged_file(tmp_path, models, reader):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    before = models.get("a")
    assert what(models.load("a")) == [("a", "replaced")]
    assert reader.read == ["one", "one"]
    assert models.get("a") is not before


def test_refused_load_does_not_change_the_repository(tmp_path, models):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    write(tmp_path / "a.treekit", "bad")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"was not loaded: .*holds 'bad'"):
            models.load("a")
        assert text_of(models, "a") == "one"
    models.unload("a")
    with pytest.raises(InvalidRequestError):
        models.load("a")
    write(tmp_path / "a.treekit", "two")
    assert models.refresh() == []  # still unloaded
    assert models.ready


def test_unknown_models_cannot_be_loaded_or_unloaded(tmp_path, models):
    write(tmp_path / "wine.treekit", "w")
    models.refresh()
    with pytest.raises(NotFoundError, match=r"no file of a model 'wime'.*'wine'"):
        models.load("wime")
    with pytest.raises(NotFoundError, match="no model 'wime'"):
        models.unload("wime")


# --------------------------------------------------------------------- asking


def test_requests_do_not_wait_for_files_being_read(tmp_path, models, reader):
    write(tmp_path / "a.treekit", "one")
    models.refresh()
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(10)

    reader.meanwhile = wait
    write(tmp_path / "a.treekit", "two")
    thread = threading.Thread(target=models.refresh)
    thread.start()
    try:
        assert begun.wait(10)
        started = time.monotonic()
        assert text_of(models, "a") == "one"
        assert models.ready
        assert models.index()[0].state == "READY"
        assert models.versions("a")
        with pytest.raises(NotFoundError):
            models.get("b")
        assert time.monotonic() - started < 1
    finally:
        go_on.set()
        thread.join(10)
    assert text_of(models, "a") == "two"


# ------------------------------------------------------------------- workers


PLACES = {"a": "a.treekit", "v": "v/1/model.treekit"}


class Workers(RuleBasedStateMachine):
    """Workers that check a folder, restart and crash, against what each must serve."""

    @initialize()
    def start(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "models"
        self.folder.mkdir()
        self.files: dict[str, str] = {}  # content of each file
        self.good: dict[str, str] = {}  # content that a worker loaded last, until it is removed
        self.is_detached = False
        self.workers, self.seen = [], []
        for _ in range(2):
            self.workers.append(self.make_worker())
            self.workers[-1].refresh()
            self.seen.append({})  # by name: content served or None, and checks without the file

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def make_worker(self) -> Repository:
        copies = ModelCopies(self.root / "copies")
        return Repository([self.folder], read=Reader(), clock=Clock(), copies=copies)

    @property
    def place(self) -> Path:
        return self.root / "detached" if self.is_detached else self.folder

    @rule(name=st.sampled_from([*PLACES]), text=st.sampled_from(["one", "two", "bad", "bad too"]))
    def write(self, name: str, text: str) -> None:
        write(self.place / PLACES[name], text)
        self.files[name] = text

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        (self.place / PLACES[name]).unlink()
        del self.files[name]

    @rule()
    def detach_or_attach(self) -> None:
        """Move the folder away or back."""
        other = self.folder if self.is_detached else self.root / "detached"
        self.place.rename(other)
        self.is_detached = not self.is_detached

    @rule()
    def check(self) -> None:
        for worker, seen in zip(self.workers, self.seen, strict=True):
            self.look(worker, seen, is_patient=True)

    @precondition(lambda self: self.good or not self.is_detached)
    @rule(number=st.sampled_from([0, 1]), is_saving=st.booleans())
    def restart(self, number: int, is_saving: bool) -> None:
        """Replace a worker, which was killed, perhaps while it saved a copy."""
        if is_saving:
            (self.root / "copies" / ".4711").write_bytes(b"half a copy")
        self.workers[number] = self.make_worker()
        self.workers[number].restore()
        self.seen[number] = {name: [text, 0] for name, text in self.good.items()}
        self.look(self.workers[number], self.seen[number], is_patient=False)

    def look(self, worker: Repository, seen: dict[str, Any], *, is_patient: bool) -> None:
        detached = pytest.raises(OSError, match="models")
        with detached if self.is_detached else contextlib.nullcontext():
            worker.refresh(patient=is_patient)
        files = {} if self.is_detached else self.files
        for name, text in files.items():
            own = seen.setdefault(name, [None, 0])
            own[1] = 0
            if not text.startswith("bad"):
                own[0] = self.good[name] = text
        for name in [*seen]:
            # While the folder is detached, a file is where it was when last seen.
            if seen[name][1] > 0 if self.is_detached else name not in files:
                seen[name][1] += 1
                if seen[name][1] == 2:
                    del seen[name]
                    self.good.pop(name, None)

    @invariant()
    def serves_last_valid_content(self) -> None:
        for worker, seen in zip(self.workers, self.seen, strict=True):
            expected = {name: text for name, (text, _) in seen.items() if text is not None}
            assert {own.name: own.text for own in worker.served} == expected  # type: ignore[attr-defined]


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def make_worker(tmp_path: Path, *sources: Path) -> Repository:
    """Make a worker that starts after others, which share its copies."""
    made = Repository(
        sources, read=Reader(), clock=Clock(), copies=ModelCopies(tmp_path / "copies")
    )
    made.restore()
    return made


def test_a_new_worker_serves_a_given_file_that_is_damaged_or_removed(tmp_path):
    write(tmp_path / "a.treekit", "one")
    make_worker(tmp_path, tmp_path / "a.treekit").refresh()
    write(tmp_path / "a.treekit", "bad")
    later = make_worker(tmp_path, tmp_path / "a.treekit")
    assert what(later.refresh()) == [("a", "kept")]
    assert (text_of(later), later.ready, later.refused_files()) == ("one", True, [])
    (tmp_path / "a.treekit").unlink()
    later = make_worker(tmp_path, tmp_path / "a.treekit")
    later.refresh()
    assert text_of(later) == "one"


def test_a_new_worker_serves_a_model_whose_file_is_briefly_missing(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.treekit", name)
    make_worker(tmp_path, tmp_path).refresh()
    (tmp_path / "a.treekit").unlink()
    later = make_worker(tmp_path, tmp_path)
    assert later.refresh() == []
    write(tmp_path / "a.treekit", "a")
    assert later.refresh(patient=True) == []
    assert [text_of(later, name) for name in "ab"] == ["a", "b"]
    (tmp_path / "a.treekit").unlink()
    assert later.refresh(patient=True) == []
    assert what(later.refresh(patient=True)) == [("a", "removed")]
    assert what(make_worker(tmp_path, tmp_path).refresh()) == []


def test_new_worker_loads_the_same_of_two_files_as_other_workers(tmp_path):
    write(tmp_path / "2" / "a.treekit", "two")
    (tmp_path / "1").mkdir()
    make_worker(tmp_path, tmp_path / "1", tmp_path / "2").refresh()
    write(tmp_path / "1" / "a.treekit", "one")
    later = make_worker(tmp_path, tmp_path / "1", tmp_path / "2")
    with pytest.raises(DataError, match="both model 'a'"):
        later.refresh()
    assert text_of(later) == "two"


@pytest.mark.skipif(os.name != "posix", reason="names and modes of POSIX")
def test_model_copies_are_private_and_allow_non_utf_8_names(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.treekit"))
    write(path, "one")
    make_worker(tmp_path, path).refresh()
    write(path, "bad")
    later = make_worker(tmp_path, path)
    later.refresh()
    assert text_of(later, path.stem) == "one"
    assert (tmp_path / "copies").stat().st_mode & 0o777 == 0o700


def test_without_disk_space_a_model_is_served_and_the_older_copy_is_removed(
    tmp_path, monkeypatch, caplog
):
    def fail(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    write(tmp_path / "a.treekit", "one")
    models = make_worker(tmp_path, tmp_path)
    models.refresh()
    write(tmp_path / "a.treekit", "two")
    monkeypatch.setattr(Path, "write_bytes", fail)
    models.refresh()
    assert text_of(models) == "two"
    assert "cannot keep a copy of model 'a'" in caplog.text
    monkeypatch.undo()
    write(tmp_path / "a.treekit", "bad")
    later = make_worker(tmp_path, tmp_path)
    later.refresh()
    with pytest.raises(UnavailableError):
        later.get()


def test_changes_are_sent_to_subscribers(tmp_path, models):
    told: list[Change] = []
    models.subscribe(told.extend)
    write(tmp_path / "a.treekit", "a")
    models.refresh()
    models.refresh()
    models.unload("a")
    models.load("a")
    assert what(told) == [("a", "loaded"), ("a", "unloaded"), ("a", "loaded")]


def test_clients_do_not_see_file_paths_and_the_log_does(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "models").symlink_to(folder)
    (folder / "bad.treekit").write_bytes(b"no model")
    models = Repository([tmp_path / "models"])
    told = []
    models.subscribe(told.extend)
    models.refresh()
    (entry,) = models.index()
    assert "bad.treekit" in entry.reason
    assert "/" not in entry.reason
    assert str(folder) in told[0].reason
    with pytest.raises(UnavailableError) as refused:
        models.get("bad")
    assert "/" not in str(refused.value)
    with pytest.raises(InvalidRequestError) as refused:
        models.load("bad")
    assert "/" not in str(refused.value)


def test_clients_do_not_see_former_link_targets(tmp_path):
    for number in (1, 2):
        folder = tmp_path / f"SECRET{number}"
        folder.mkdir()
        (folder / "broken.treekit").write_bytes(b"no model")
    served = tmp_path / "pub"
    served.mkdir()
    link = served / "bad.treekit"
    link.symlink_to(tmp_path / "SECRET1" / "broken.treekit")
    models = Repository([served])
    models.refresh()
    link.unlink()
    link.symlink_to(tmp_path / "SECRET2" / "broken.treekit")
    models.refresh()
    (served / "other.treekit").write_bytes(b"no model either")
    models.refresh()
    assert all("SECRET" not in entry.reason for entry in models.index())


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
@pytest.mark.parametrize("is_relative", [False, True])
def test_reasons_hide_the_folder_of_a_broken_symlink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    models, secret = tmp_path / "models", tmp_path / "SECRET"
    models.mkdir()
    secret.mkdir()
    monkeypatch.chdir(tmp_path)
    (models / "gone.treekit").symlink_to(secret / "away.treekit")
    (models / "bad.treekit").symlink_to(secret / "bad.treekit")
    (secret / "bad.treekit").write_bytes(b"no model")
    repository = Repository([Path("models") if is_relative else models])
    repository.refresh()
    reasons = [entry.reason for entry in repository.index()]
    assert len(reasons) == 2
    assert all(reasons)
    assert "/" not in "".join(reasons)


def test_symlink_to_itself_is_refused_and_others_are_read(tmp_path):
    (tmp_path / "a.treekit").symlink_to(tmp_path / "a.treekit")
    (tmp_path / "b.treekit").write_bytes(b"no model")
    models = Repository([tmp_path])
    models.refresh()
    first, second = models.index()
    assert (first.name, first.state) == ("a", "UNAVAILABLE")
    assert "symbolic links" in first.reason
    assert "b.treekit" in second.reason


# ---------------------------------------------------------------- serve reload
# Model files that change under load: no answer is lost, and none is mixed of two versions.

ROWS = ((0.5, 0.25), (-0.5, 0.75), (0.1, -0.9), (-0.3, -0.3))
BODY = infer_body(*ROWS)


@pytest.fixture(scope="module")
def forests(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models that answer the same rows with other numbers."""
    paths = [tmp_path_factory.mktemp("forests") / f"{seed}.bin" for seed in (1, 5)]
    for seed, path in enumerate(paths, 1):
        draft = path.with_suffix(".treekit")
        save_forest(draft, seed=4 * seed, trees=20)
        draft.rename(path)
    return paths


def numbers_of(path: Path) -> list[float]:
    """What a model says of `ROWS`, as its own library has it."""
    rows = {"a": [row[0] for row in ROWS], "b": [row[1] for row in ROWS]}
    model = load(path)
    return [float(cell) for cell in model.predict_proba(rows).ravel()]


def put(source: Path, target: Path) -> None:
    """Replace a file in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    shutil.copy(source, draft)
    draft.replace(target)


def version_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


class Clients:
    """Threads that ask one model all the time; what they got, by version."""

    def __init__(self, url: str, count: int = 3) -> None:
        self._place = url.removeprefix("http://")
        self._over = threading.Event()
        self.answers: dict[str, int] = {}
        self.numbers: dict[str, set[tuple[float, ...]]] = {}
        self.trouble: list[str] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        while not self._over.is_set():  # a connection for some requests: workers take turns
            try:
                with contextlib.closing(
                    http.client.HTTPConnection(self._place, timeout=20)
                ) as connection:
                    for _ in range(20):
                        self._ask_once(connection)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.trouble.append(repr(error))
                return

    def _ask_once(self, connection: http.client.HTTPConnection) -> None:
        connection.request("POST", "/v2/models/said/infer", BODY)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != 200:
            self.trouble.append(f"{answer.status} {said}")
            return
        outputs = {output["name"]: output["data"] for output in said["outputs"]}
        with self._lock:
            version = said["model_version"]
            self.answers[version] = self.answers.get(version, 0) + 1
            self.numbers.setdefault(version, set()).add(tuple(outputs["probabilities"]))


def wait_until(happens: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_no_response_is_lost_or_mixed_while_a_file_is_replaced(tmp_path, forests, workers):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    with server_process(
        tmp_path, "--reload", 0.02, "--workers", workers, "--log", "quiet"
    ) as running:
        with Clients(running.url) as clients:
            for turn in range(1, 9):
                seen = clients.answers.get(version_of(forests[turn % 2]), 0)
                put(forests[turn % 2], target)
                wait_until(
                    lambda now=turn, before=seen: (
                        clients.answers.get(version_of(forests[now % 2]), 0) > before + 5
                    )
                )
        assert running.end() == 0
    assert clients.trouble == []
    assert {version: list(*map(list, said)) for version, said in clients.numbers.items()} == {
        version_of(path): numbers_of(path) for path in forests
    }


@pytest.mark.system
def test_no_response_is_lost_or_mixed_while_versions_change(tmp_path, forests):
    put(forests[0], tmp_path / "said" / "1" / "model.treekit")
    with server_thread(tmp_path, reload_seconds=0.02) as url, Clients(url, 2) as clients:
        for version in range(2, 10):
            path = tmp_path / "said" / str(version) / "model.treekit"
            put(forests[(version + 1) % 2], path)
            wait_until(lambda now=str(version): clients.answers.get(now, 0) > 3)
            shutil.rmtree(tmp_path / "said" / str(version - 1))
    assert clients.trouble == []
    expected = [tuple(numbers_of(path)) for path in forests]
    assert {int(version): said for version, said in clients.numbers.items()} == {
        version: {expected[(version + 1) % 2]} for version in range(1, 10)
    }


@pytest.mark.system
def test_a_damaged_file_is_reported_once_and_its_model_keeps_serving(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    bad = tmp_path / "bad.bin"
    bad.write_bytes(forests[1].read_bytes()[:-100])
    with server_process(target, "--reload", 0.02) as running, Clients(running.url, 1) as clients:
        put(bad, target)
        running.wait_for("error   model 'said' .* is kept, as its new file was rejected: ")
        time.sleep(0.3)
        assert running.said.count("is kept, as its new file was rejected") == 1
        put(forests[1], target)
        running.wait_for(f"model 'said' is replaced by version {version_of(forests[1])}")
        wait_until(lambda: version_of(forests[1]) in clients.answers)
    assert clients.trouble == []
    assert set(clients.answers) == {version_of(path) for path in forests}


@pytest.mark.system
def test_file_written_slowly_in_place_serves_only_when_complete(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    content = forests[1].read_bytes()
    with server_process(target, "--reload", 0.02) as running, Clients(running.url, 1) as clients:
        with target.open("wb") as stream:
            for part in range(10):
                stream.write(content[part * len(content) // 10 : (part + 1) * len(content) // 10])
                stream.flush()
                time.sleep(0.05)
        running.wait_for(f"replaced by version {version_of(forests[1])}")
        wait_until(lambda: version_of(forests[1]) in clients.answers)
    assert clients.trouble == []
    assert set(clients.answers) == {version_of(path) for path in forests}


@pytest.mark.system
def test_a_scan_interval_of_0_disables_scanning(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    with server_thread(target, reload_seconds=0) as url, Clients(url, 1) as clients:
        put(forests[1], target)
        time.sleep(0.2)
    assert set(clients.answers) == {version_of(forests[0])}


def test_replaced_model_is_freed_at_once(tmp_path, forests):
    """Not when the collector comes by: a model may be most of a machine's memory."""
    from treekit.serve.models.repository import Repository

    put(forests[0], tmp_path / "said.treekit")
    models = Repository([tmp_path])
    models.refresh()
    old = weakref.ref(models.get("said")), weakref.ref(models.get("said").model)
    put(forests[1], tmp_path / "said.treekit")
    gc.collect()
    gc.disable()
    try:
        models.refresh()
        assert [one() for one in old] == [None, None]
    finally:
        gc.enable()
    assert models.get("said").version == version_of(forests[1])
