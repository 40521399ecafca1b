"""Two thousand requests that are wrong in sixteen ways: none breaks the server or swells it."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import client_of, on_a_port, save_models, service_of
from treekit.serve.http.app import make_app

REQUESTS = 2_000
REFUSED = {400, 413, 415}
URL = "/v2/models/texts/infer"

Made = tuple[bytes, dict[str, str]]
GOOD = {"name": "input", "shape": [2, 4], "datatype": "FP32", "data": [[0.5] * 4, [-1.5] * 4]}


def json_of(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def plain(**changes: Any) -> Made:
    return json_of({**GOOD, **changes}), {}


def binary(data: bytes, size: Any, length: Any = None, datatype: str = "FP32") -> Made:
    given = {"name": "input", "shape": [2, 4], "datatype": datatype}
    head = json_of({**given, "parameters": {"binary_data_size": size}})
    return head + data, {
        "Inference-Header-Content-Length": str(len(head) if length is None else length)
    }


FLOATS = struct.pack("<8f", *range(8))


def truncated(rng: random.Random) -> Made:
    body, headers = rng.choice([plain(), binary(FLOATS, 32)])
    return body[: rng.randrange(len(body))], headers


def noise(rng: random.Random) -> Made:
    return rng.randbytes(rng.randrange(3000)), {}


def flipped(rng: random.Random) -> Made:
    body, headers = rng.choice([plain(), binary(FLOATS, 32)])
    mutable = bytearray(body)
    for _ in range(rng.randrange(1, 6)):
        mutable[rng.randrange(len(mutable))] = rng.randrange(256)
    return bytes(mutable), headers


def lengths(rng: random.Random) -> Made:
    odd = [-1, 0, 1, 5, 10**6, 10**30, 2**63, "", "a", "0x10", "1e2", "²", "7_0", "٣"]
    return binary(FLOATS, 32, rng.choice(odd))


def sizes(rng: random.Random) -> Made:
    odd = [-1, 0, 31, 33, 10**9, 2**63, 2**64, None, True, 32.0, "32", 1e300]
    return binary(FLOATS[: rng.choice([0, 7, 32])], rng.choice(odd))


def shapes(rng: random.Random) -> Made:
    huge = [10**9, 2**31, 2**62, 2**63, 2**64, 10**40, 0, -1, -(2**63), 1, 2, 28]
    count = rng.choice([0, 1, 2, 3, 9, 64, 4000])
    shape: list[Any] = [rng.choice(huge) for _ in range(count)]
    if shape in ([2, 4], [2, 1, 4]):
        shape = []
    if rng.random() < 0.2:
        shape = rng.choice([[1.5, 4], ["2", "4"], [None], [[2, 4]], {}, None, "2,4", True])
    return plain(shape=shape)


def literals(rng: random.Random) -> Made:
    word = rng.choice(["-NaN", "+Infinity", "inf", "nan", "1e400", "-1e999", "01", "+1", "1."])
    return plain()[0].replace(b"-1.5", word.encode(), 1), {}


def depths(rng: random.Random) -> Made:
    deep = rng.choice([3, 50, 1_000, 200_000])
    opened, closed = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nest = opened * deep + b"1" + closed * deep
    return rng.choice(
        [
            plain()[0].replace(b"[[0.5", nest + b",[[0.5"),
            b'{"x":' + nest + b',"inputs":[]}',
            b'{"inputs":' + nest + b"}",
            nest,
        ]
    ), {}


def encodings(rng: random.Random) -> Made:
    text = json.dumps({"id": "Ünïcode", "inputs": [GOOD]}, ensure_ascii=False)
    coding = rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037", "utf-7"])
    return text.encode(coding) + (b"\xff" if coding == "utf-7" else b""), {}


def ragged(rng: random.Random) -> Made:
    data: list[Any] = [[0.5] * 4, [-1.5] * 4]
    cell = rng.choice(["1", True, [], {}, [1.0], {"a": 1}, 1e39, "\x00", 10**400])
    data[rng.randrange(2)][rng.randrange(4)] = cell
    return plain(data=rng.choice([data, data[:1], [data], data[0] + data[1], cell, [[]] * 2]))


def repeats(rng: random.Random) -> Made:
    body = plain()[0].decode()
    name = rng.choice(["inputs", "name", "shape", "datatype", "data"])
    twice = body.replace(f'"{name}":', f'"{name}": {rng.choice(["[]", "1", "null"])}, "{name}":')
    return rng.choice([twice.encode(), json_of(GOOD, GOOD)]), {}


def datatypes(rng: random.Random) -> Made:
    odd = ["BF16", "fp32", "FP8", "", "STRING", "object", "f4", "INT", "\x00", "🌳" * 999, 7, None]
    return plain(datatype=rng.choice(odd))


def names(rng: random.Random) -> Made:
    name = rng.choice(["", "x0", "INPUT", "in\x00put", "i" * 100_000, "__class__", "🌳" * 3000, 5])
    if rng.random() < 0.5 and name != "":
        return json_of(GOOD, outputs=[{"name": name}]), {}
    return plain(name=name)


def forms(rng: random.Random) -> Made:
    value = rng.choice([None, 1, 1.5, "a", [], {}, [None], [[]], True])
    place = rng.choice(["inputs", "outputs", "parameters", "input", "input parameters"])
    if place == "inputs":
        return json.dumps({"inputs": value}).encode(), {}
    if place == "input":
        return json_of(value), {}
    odd = [7, "a", [None], [[]], True, {"binary_data_output": 1, "classification": 3}]
    if place == "input parameters":
        return plain(parameters=rng.choice([*odd[:5], {"shared_memory_region": "a"}]))
    return json_of(GOOD, **{place: rng.choice(odd)}), {}


def codings(rng: random.Random) -> Made:
    body = plain()[0]
    bomb = gzip.compress(b" " * (3 << 20), 9)
    packed = gzip.compress(body)
    coding, data = rng.choice(
        [
            ("gzip", body),
            ("gzip", packed[:-1]),
            ("gzip", packed + b"x"),
            ("gzip", bomb),
            ("deflate", packed),
            ("br", packed),
            ("gzip, deflate", packed),
            ("x" * 2000, packed),
        ]
    )
    return data, {"Content-Encoding": coding}


def elements(rng: random.Random) -> Made:
    texts = [rng.randbytes(rng.randrange(6)) for _ in range(8)]
    texts[rng.randrange(8)] = b"\xff\xfe"
    data = bytearray(b"".join(struct.pack("<I", len(text)) + text for text in texts))
    if rng.random() < 0.5:
        struct.pack_into("<I", data, 0, rng.choice([2**32 - 1, 2**31, 10**6, len(data)]))
    return binary(bytes(data), len(data), datatype="BYTES")


KINDS: list[Callable[[random.Random], Made]] = [
    *(truncated, noise, flipped, lengths, sizes, shapes, literals, depths),
    *(encodings, ragged, repeats, datatypes, names, forms, codings, elements),
]


def as_bytes(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): text.encode() for name, text in headers.items()}


def resident() -> int:
    """Bytes of this process in memory: server and client."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_wrong_requests_of_every_kind_are_refused_in_words(tmp_path: Path) -> None:
    """Ten of each, in process."""
    rng = random.Random(9)
    service = service_of(save_models(tmp_path), body_bytes=1 << 20)

    async def ask() -> None:
        async with client_of(make_app(service)) as client:
            right = await client.post(URL, content=plain()[0])
            for kind in KINDS * 10:
                body, headers = kind(rng)
                answer = await client.post(URL, content=body, headers=as_bytes(headers))
                check_refusal(kind, body, answer)
            assert (await client.post(URL, content=plain()[0])).content == right.content

    asyncio.run(ask())


def check_refusal(kind: Callable[..., Made], body: bytes, answer: httpx.Response) -> None:
    """A wrong request is refused with a status and words of its own."""
    if answer.status_code == 200:  # some flips make another request that is right
        assert kind in (flipped, ragged), (kind, body[:300])
    else:
        assert answer.status_code in REFUSED, (kind, answer, body[:300])
        (words,) = answer.json().values()
        assert 0 < len(words) <= 2_003


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_two_thousand_wrong_requests_break_and_swell_nothing(tmp_path: Path) -> None:
    rng = random.Random(8)
    seen: Counter[tuple[str, int]] = Counter()
    memory = []
    service = service_of(save_models(tmp_path), body_bytes=1 << 20)
    with (
        on_a_port(service) as address,
        httpx.Client(base_url=f"http://{address}", timeout=20) as client,
    ):
        right = client.post(URL, content=plain()[0]).content
        for number in range(REQUESTS):
            kind = KINDS[number % len(KINDS)]
            body, headers = kind(rng)
            answer = client.post(URL, content=body, headers=as_bytes(headers))
            seen[kind.__name__, answer.status_code] += 1
            check_refusal(kind, body, answer)
            if number % 100 == 99:
                assert client.post(URL, content=plain()[0]).content == right
                memory.append(resident())
    assert sum(seen.values()) == REQUESTS
    for kind in KINDS:
        assert sum(seen[kind.__name__, status] for status in REFUSED) > REQUESTS / 30
    # Of 20 readings the first are while pools and caches fill.
    assert max(memory[10:]) - max(memory[:10]) < 8 << 20, [size >> 20 for size in memory]
