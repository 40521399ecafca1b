"""Deadlines, threads in bounds, and small requests that are answered together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Router

from tests.examples import examples
from tests.serving import client_of, put_in_service
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.serve.errors import (
    InvalidRequestError,
    ServeError,
    TooSlowError,
    UnavailableError,
)
from treekit.serve.http import oip_routes as oip
from treekit.serve.http import read_body
from treekit.serve.http.app import make_app, routes
from treekit.serve.http.oip_routes import Direct
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.models.treekit_model import TreekitServed
from treekit.serve.scheduling import Deadlines, Runner, Service
from treekit.serve.settings import Limits, ServeSettings


def late(seconds: float = 0.1) -> Deadlines:
    return Deadlines(seconds, TooSlowError("it took too long"))


# ----------------------------------------------------------------------- deadlines


def test_a_work_that_takes_too_long_ends_with_the_error_and_the_task_goes_on():
    async def work() -> str:
        deadlines = late()
        with pytest.raises(TooSlowError, match="took too long"), deadlines.watch():
            await asyncio.sleep(30)
        with deadlines.watch():
            await asyncio.sleep(0)  # the task is not cancelled any more
        assert not deadlines.working
        assert asyncio.current_task().cancelling() == 0
        return "done"

    began = time.monotonic()
    assert asyncio.run(work()) == "done"
    assert time.monotonic() - began < 5


def test_of_many_works_only_those_too_long_are_ended():
    async def work(deadlines: Deadlines, seconds: float) -> str:
        try:
            with deadlines.watch():
                await asyncio.sleep(seconds)
        except TooSlowError:
            return "late"
        return "in time"

    async def all_of_them() -> list[str]:
        deadlines = late(0.4)
        return await asyncio.gather(*(work(deadlines, own) for own in (0, 30, 0.01, 30, 0.02)))

    assert asyncio.run(all_of_them()) == ["in time", "late", "in time", "late", "in time"]


def test_a_cancellation_from_elsewhere_stays_one():
    async def work() -> None:
        with late(30).watch():
            await asyncio.sleep(30)

    async def cancelled() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_deadlines_go_over_to_another_event_loop():
    deadlines = late()

    async def work() -> None:
        with pytest.raises(TooSlowError), deadlines.watch():
            await asyncio.sleep(30)

    asyncio.run(work())
    asyncio.run(work())


def test_no_sweep_is_due_when_nothing_is_under_way():
    async def work() -> None:
        deadlines = late(0.04)
        with deadlines.watch():
            pass
        assert deadlines._loop is not None
        await asyncio.sleep(0.1)
        assert deadlines._loop is None

    asyncio.run(work())


# -------------------------------------------------------------------------- bodies


def receiver(*parts: Any) -> Callable[[], Any]:
    """An ASGI ``receive`` of parts; a number is a wait, None that the client goes."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        while isinstance(left[0], (int, float)):
            await asyncio.sleep(left.pop(0))
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def body_of(*parts: Any, **limits: Any) -> bytes:
    scope = {"headers": []}
    own = Limits(**({"seconds": 0.2} | limits))

    async def whole() -> bytes:
        return await read_body(scope, receiver(*parts), own)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    "parts",
    [(b"abc",), (0.01, b"abc"), (b"a", b"bc"), (0.01, b"a", 0.01, b"b", b"c"), (b"", b"abc")],
)
def test_a_body_is_read_whole_at_once_or_as_it_comes(parts):
    assert body_of(*parts) == b"abc"


@pytest.mark.parametrize("parts", [(30, b"abc"), (b"a", 30, b"bc"), (0.01, b"a", 30, b"bc")])
def test_a_slow_body_is_told_so_wherever_it_stops(parts):
    with pytest.raises(TooSlowError, match=r"within 0\.2 s"):
        body_of(*parts)


def test_a_trickle_of_bytes_does_not_begin_the_time_anew():
    with pytest.raises(TooSlowError):
        body_of(*(0.05, b"a") * 40)


@pytest.mark.parametrize("parts", [(None,), (0.01, None), (b"a", None), (0.01, b"a", 0.01, None)])
def test_a_client_that_goes_leaves_no_body(parts):
    with pytest.raises(InvalidRequestError, match="the client went"):
        body_of(*parts)


@pytest.mark.parametrize(
    "parts", [(b"abcd",), (0.01, b"abcd"), (b"ab", b"cd"), (0.01, b"ab", b"cd")]
)
def test_a_body_beyond_the_limit_is_refused_however_it_comes(parts):
    with pytest.raises(ServeError, match="longer than the 3 bytes"):
        body_of(*parts, body_bytes=3)


# ---------------------------------------------------------------------------- paths


async def asked_for(app: Any, path: str, method: str = "POST") -> tuple[int, bytes]:
    """Status and body of an answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await app(scope, receiver(b"{}"), send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.sampled_from(["v2", "models", "versions", "infer", "two", "1", "", "a b", "é"]),
        max_size=8,
    ).map(lambda parts: "/" + "/".join(parts))
    | st.sampled_from(
        [
            "/v2/models/two/infer",
            "/v2/models/two/versions/1/infer",
            "/v2/models/x/infer",
            "/v2/models//infer",
        ]
    ),
    st.sampled_from(["POST", "GET"]),
)
def test_the_way_past_the_router_leads_where_the_router_does(path, method):
    direct, router = both_ways()
    assert asyncio.run(asked_for(direct, path, method)) == asyncio.run(
        asked_for(router, path, method)
    )


@functools.cache
def both_ways() -> tuple[Direct, Router]:
    """The way past the router, and the router."""
    service = service_of(two_columns())
    router = Router(routes(service), redirect_slashes=False)
    return Direct(service, router), router


# -------------------------------------------------------------------------- threads


def two_columns(**policies: Any) -> TreekitServed:
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("Ulm", "Bonn"))), classes=("no", "yes")
    )
    right = subset("town", ["Bonn"], leaf([1, 9]), leaf([1, 0]))
    tree = threshold("x", 0.0, leaf([3, 1]), right)
    model = make_model(schema, [build_tree(tree, schema)], **policies)
    return TreekitServed("two", "1", "0" * 64, model)


def service_of(served: Served, **settings_: Any) -> Service:
    repository = Repository([])
    put_in_service(repository, served)
    return Service(repository, Runner(Limits(), **settings_))


class Slow(Served):
    """Answers when it is told to."""

    name, version, effort = "slow", "1", 1e9
    usual = ("n",)

    def __init__(self) -> None:
        self.begun = 0
        self.go = threading.Event()

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        raise NotImplementedError

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        self.begun += 1
        assert self.go.wait(20)
        return [Tensor("n", "INT64", np.arange(batch.rows))]


ONE = Batch(1, (np.zeros((1, 2), np.float32),))


def test_an_answer_that_takes_too_long_is_503_and_its_thread_stays_taken():
    slow, runner = Slow(), Runner(Limits(seconds=0.1), threads=1, queued=1)

    async def work() -> None:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"longer than 0\.1 s"):
                await runner.run(slow, ONE, ("n",))
        assert slow.begun == 1
        slow.go.set()
        assert len((await runner.run(slow, ONE, ("n",)))[0].cells) == 1

    try:
        asyncio.run(work())
    finally:
        slow.go.set()
        runner.close()


def test_what_no_thread_has_place_for_is_refused_at_once_and_has_place_later():
    slow, runner = Slow(), Runner(Limits(), threads=1, queued=2)

    async def work() -> None:
        works = [asyncio.create_task(runner.run(slow, ONE, ("n",))) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(UnavailableError, match="2 large requests wait for a thread already"):
            await runner.run(slow, ONE, ("n",))
        slow.go.set()
        assert len(await asyncio.gather(*works)) == 3
        await runner.run(slow, ONE, ("n",))

    try:
        asyncio.run(work())
    finally:
        slow.go.set()
        runner.close()


def test_a_runner_that_is_closed_takes_no_more_and_drops_what_waits():
    slow, runner = Slow(), Runner(Limits(), threads=1)

    async def work() -> None:
        works = [asyncio.create_task(runner.run(slow, ONE, ("n",))) for _ in range(2)]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        runner.close()
        assert time.monotonic() - began < 1
        with pytest.raises(UnavailableError, match="is closing"):
            await runner.run(slow, ONE, ("n",))
        slow.go.set()
        first, second = await asyncio.gather(*works, return_exceptions=True)
        assert len(first[0].cells) == 1
        assert isinstance(second, UnavailableError)
        assert "is closing" in str(second)

    asyncio.run(work())
    assert slow.begun == 1


def test_large_requests_and_large_answers_do_not_keep_the_event_loop(monkeypatch):
    service = service_of(two_columns())
    rows = 12_000
    data = {"x": [0.5] * rows, "town": ["Ulm"] * rows}
    inputs = [
        {"name": name, "shape": [rows], "datatype": kind, "data": data[name]}
        for name, kind in (("x", "FP32"), ("town", "BYTES"))
    ]
    body = msgspec.json.encode({"inputs": inputs})
    threads: list[str] = []
    for name in ("read_request", "tensors_of", "answer_of"):
        own = getattr(oip, name)

        def seen(*given: Any, own: Any = own) -> Any:
            threads.append(threading.current_thread().name)
            return own(*given)

        monkeypatch.setattr(oip, name, seen)
    status, _ = asyncio.run(posted(make_app(service), "/v2/models/two/infer", body))
    assert status == 200
    assert len(threads) == 3
    assert all(name.startswith("treekit-answer") for name in threads)


async def posted(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    async with client_of(app) as client:
        answer = await client.post(path, content=body)
    return answer.status_code, answer.content


# ------------------------------------------------------------------------- batching


class Counting(TreekitServed):
    """Remembers how many rows it was asked at once."""

    def __init__(self, served: TreekitServed, version: str = "1") -> None:
        super().__init__(served.name, version, served.digest, served._model)
        self.asked: list[int] = []

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        self.asked.append(batch.rows)
        return super().answer(batch, wanted)


def batch_of(rng: np.random.Generator, rows: int) -> Batch:
    x = rng.normal(size=(rows, 1))
    return Batch(rows, (np.hstack([x, rng.integers(0, 2, (rows, 1))]).astype(np.float32),))


def batching(rows: int = 16, delay: float = 0.01, **limits: Any) -> Runner:
    return Runner.of(ServeSettings((), batch_rows=rows, batch_delay=delay, limits=Limits(**limits)))


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(
        (a.name, a.datatype, a.cells.dtype) == (b.name, b.datatype, b.cells.dtype)
        and a.cells.tolist() == b.cells.tolist()
        for a, b in zip(one, other, strict=True)
    )


def test_small_requests_are_joined_and_answered_as_alone():
    served, rng = Counting(two_columns()), np.random.default_rng(0)
    batches = [batch_of(rng, int(rows)) for rows in rng.integers(0, 5, 60)]
    kinds = [("label",), ("label", "probabilities"), ("leaf",)]

    async def work() -> list[list[Tensor]]:
        runner = batching()
        return await asyncio.gather(
            *(runner.run(served, own, kinds[i % 3]) for i, own in enumerate(batches))
        )

    said = asyncio.run(work())
    joined = list(served.asked)
    assert max(joined) <= 16
    assert sum(joined) == sum(own.rows for own in batches)
    assert len(joined) < len(batches) / 2
    for i, own in enumerate(batches):
        assert same(said[i], served.answer(own, kinds[i % 3]))


def test_a_request_that_is_to_be_answered_alone_is_never_joined():
    served, rng = Counting(two_columns()), np.random.default_rng(0)
    batches = [batch_of(rng, 2)._replace(alone=k % 2 == 0) for k in range(6)]

    async def work() -> None:
        runner = batching()
        await asyncio.gather(*(runner.run(served, own, ("label",)) for own in batches))

    asyncio.run(work())
    assert sorted(served.asked) == [2, 2, 2, 6]


def test_a_request_waits_for_others_no_longer_than_the_delay_and_large_ones_not_at_all():
    served, rng = Counting(two_columns()), np.random.default_rng(0)

    async def seconds(rows: int) -> float:
        runner = batching(16, 0.3)
        began = time.monotonic()
        await runner.run(served, batch_of(rng, rows), ("label",))
        return time.monotonic() - began

    assert 0.25 < asyncio.run(seconds(1)) < 3
    assert asyncio.run(seconds(9)) < 0.25


def test_a_full_batch_waits_no_longer():
    served, rng = Counting(two_columns()), np.random.default_rng(0)

    async def work() -> float:
        runner = batching(4, 30)
        began = time.monotonic()
        await asyncio.gather(*(runner.run(served, batch_of(rng, 1), ("label",)) for _ in range(8)))
        return time.monotonic() - began

    assert asyncio.run(work()) < 10
    assert served.asked == [4, 4]


def test_a_row_that_a_policy_refuses_fails_alone():
    served = Counting(two_columns(missing="error"))
    good, bad = np.array([[1, 1]], np.float32), np.array([[np.nan, 1]], np.float32)

    async def work() -> list[Any]:
        runner = batching()
        return await asyncio.gather(
            *(runner.run(served, Batch(1, (row,)), ("label",)) for row in (good, bad, good)),
            return_exceptions=True,
        )

    first, refused, last = asyncio.run(work())
    assert first[0].cells.tolist() == last[0].cells.tolist() == ["yes"]
    assert isinstance(refused, InvalidRequestError)
    with pytest.raises(InvalidRequestError) as alone:
        served.answer(Batch(1, (bad,)), ("label",))
    assert str(refused) == str(alone.value)


def test_what_fails_all_together_is_told_to_each():
    slow = Slow()

    async def work() -> list[Any]:
        runner = batching(8, 0.01, seconds=0.1)
        works = (runner.run(slow, ONE, ("n",)) for _ in range(3))
        try:
            return await asyncio.gather(*works, return_exceptions=True)
        finally:
            slow.go.set()
            runner.close()

    errors = asyncio.run(work())
    assert all(isinstance(error, UnavailableError) for error in errors)
    assert len(set(map(id, errors))) == 3
    assert slow.begun == 1


def test_one_who_goes_does_not_take_the_others_along():
    served, rng = Counting(two_columns()), np.random.default_rng(0)

    async def work() -> None:
        runner = batching(16, 0.05)
        works = [
            asyncio.create_task(runner.run(served, batch_of(rng, 1), ("label",))) for _ in range(3)
        ]
        await asyncio.sleep(0.01)
        works[1].cancel()
        said = await asyncio.gather(*works, return_exceptions=True)
        assert isinstance(said[1], asyncio.CancelledError)
        assert len(said[0][0].cells) == len(said[2][0].cells) == 1

    asyncio.run(work())


def test_reloads_under_many_requests_never_mix_versions():
    versions = [Counting(two_columns(), str(number)) for number in range(20)]
    rng = np.random.default_rng(0)
    service = service_of(versions[0], batch_rows=8, batch_delay=0.001)
    for served in versions:  # each version's labels are its own
        spec, _ = served._say["label"]
        served._say["label"] = (
            spec,
            lambda total, own=served.version: np.array([own] * len(total), dtype=object),
        )

    async def client() -> int:
        mixed = 0
        for _ in range(60):
            served = service.repository.get("two")
            own = batch_of(rng, int(rng.integers(1, 4)))
            (label,) = await service.runner.run(served, own, ("label",))
            mixed += label.cells.tolist() != [served.version] * own.rows
        return mixed

    async def reload() -> None:
        for served in versions:
            put_in_service(service.repository, served)
            await asyncio.sleep(0.003)

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(reload(), *(client() for _ in range(16)))

    assert sum(asyncio.run(all_of_them())[1:]) == 0
    assert sum(len(served.asked) > 0 for served in versions) > 2
    assert max(max(served.asked, default=0) for served in versions) > 3


def test_explanations_wait_for_threads_in_bounds_and_give_their_places_back():
    async def run() -> None:
        runner, go = Runner(Limits(), threads=1, queued=2), threading.Event()
        under_way = [asyncio.create_task(runner.beside(go.wait, 20)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(UnavailableError, match="2 explanations or lists of rules wait"):
            await runner.beside(time.sleep, 0)
        assert await runner.work(len, "ab") == 2  # the others' threads are free
        go.set()
        assert await asyncio.gather(*under_way) == [True] * 3
        assert await runner.beside(len, "ab") == 2
        runner.close()

    asyncio.run(run())


def test_an_explanation_that_is_given_up_gives_its_place_back():
    async def run() -> None:
        runner, go = Runner(Limits(seconds=0.05), threads=1, queued=1), threading.Event()
        for _ in range(2):
            with pytest.raises(UnavailableError, match="took longer than"):
                await runner.beside(go.wait, 20)
        go.set()
        for _ in range(100):
            await asyncio.sleep(0.01)
            with contextlib.suppress(UnavailableError):
                assert await runner.beside(len, "ab") == 2
                break
        else:
            raise AssertionError("no place came back")
        runner.close()

    asyncio.run(run())
