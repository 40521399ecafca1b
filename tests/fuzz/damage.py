"""Ways to damage files: bytes of any file, words of a text, values of JSON, entries of a zip."""

from __future__ import annotations

import copy
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = [
    "HOSTILE_FLOATS",
    "HOSTILE_WHOLES",
    "broken_bytes",
    "broken_json",
    "broken_proto",
    "broken_text",
    "broken_zip",
    "mixed",
    "pick",
]

Rng = np.random.Generator

HOSTILE_BYTES = (0x00, 0x01, 0x0A, 0x22, 0x2C, 0x5B, 0x7B, 0x7F, 0x80, 0xFF)
HOSTILE_WORDS = (
    *("-1", "0", "1", "2", "1e999", "-1e999", "nan", "inf", "-0.0", "1e-320", "0x1p3", "1_0", "²"),
    *("2147483648", "4294967296", "9223372036854775808", "-9223372036854775809", "9" * 5000),
    *(
        "",
        " ",
        "\0",
        '"',
        "'",
        "\\",
        "\ud7ff",
        "\u2028",
        "../../etc/passwd",
        "os.system",
        "A" * 3000,
    ),
    *("null", "true", "[]", "{}", "[" * 3000, "{" * 3000, "<" * 50, "%s%n", "=1+1", "0" * 400),
    "A" * 3000,
)
HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 255, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63),
    *(10**400, -(10**30), 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), float("-inf")),
    *("", "a", "nan", "1", "\0", "é" * 300, "../../etc/passwd", "__import__('os')", "9" * 5000),
    *([], {}, [[]], [None], {"": None}, [0] * 200, {"a": [{}]}, [[0, 1], [1]], ["a", "a"]),
)
HOSTILE_WHOLES = (0, 1, -1, 2, 3, 127, 255, -128, 32767, 2**31 - 1, -(2**31), 2**62, -(2**63))
HOSTILE_FLOATS = (0.0, -0.0, 1.0, -1.0, 5e-324, 1e-45, 1e39, 1e308, np.inf, -np.inf, np.nan)


def pick(rng: Rng, choices: Sequence[Any]) -> Any:
    """One of the choices as it is (NumPy would make an array of them)."""
    return choices[int(rng.integers(len(choices)))]


# ------------------------------------------------------------------ bytes


def broken_bytes(seeds: Sequence[bytes], rng: Rng) -> bytes:
    """A file with bytes flipped, set, cut, repeated or moved, or spliced with another."""
    content = bytearray(pick(rng, seeds))
    for _ in range(int(rng.integers(1, 4))):
        if content:
            content = bytearray(pick(rng, _WAYS)(content, seeds, rng))
    return bytes(content)


def _span(content: bytearray, rng: Rng, most: int = 64) -> slice:
    first = int(rng.integers(len(content)))
    return slice(first, first + int(rng.integers(1, most)))


def _flip(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    for at in rng.integers(len(content), size=int(rng.integers(1, 5))).tolist():
        content[at] ^= 1 << int(rng.integers(8))
    return content


def _set(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    for at in rng.integers(len(content), size=int(rng.integers(1, 3))).tolist():
        content[at] = pick(rng, HOSTILE_BYTES)
    return content


def _set_in_tail(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    at = int(rng.integers(max(len(content) - 400, 0), len(content)))  # a zip's directory
    content[at] = int(rng.integers(256))
    return content


def _truncate(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    return content[: int(rng.integers(len(content)))]


def _behead(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    return content[int(rng.integers(len(content))) :]


def _cut(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    del content[_span(content, rng)]
    return content


def _repeat(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    span = _span(content, rng, 400)
    content[span.start : span.start] = content[span] * int(rng.integers(1, 9))
    return content


def _insert(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    at = int(rng.integers(len(content) + 1))
    content[at:at] = rng.bytes(int(rng.integers(1, 40)))
    return content


def _overwrite(content: bytearray, _: Sequence[bytes], rng: Rng) -> bytearray:
    number = pick(rng, HOSTILE_WHOLES)
    word = pick(rng, (struct.pack("<q", number), struct.pack("<i", number % 2**31)))
    at = int(rng.integers(len(content)))
    content[at : at + len(word)] = word
    return content


def _splice(content: bytearray, seeds: Sequence[bytes], rng: Rng) -> bytearray:
    other = pick(rng, seeds)
    return content[: int(rng.integers(len(content)))] + other[int(rng.integers(len(other))) :]


_WAYS = (
    *(_flip, _set, _set_in_tail, _truncate, _behead, _cut, _repeat, _insert, _overwrite, _splice),
)

# ------------------------------------------------------------------ text

_TOKEN = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\w+|[^\w\s]")


def broken_text(seeds: Sequence[bytes], rng: Rng) -> bytes:
    """A text with numbers and words exchanged for hostile ones, or lines moved about."""
    text = pick(rng, seeds).decode("utf-8")
    for _ in range(int(rng.integers(1, 4))):
        way = rng.random()
        text = _other_word(text, rng) if way < 0.6 else _other_lines(text, rng)
    return text.encode("utf-8", "surrogatepass")


def _other_word(text: str, rng: Rng) -> str:
    words = list(_TOKEN.finditer(text))
    if not words:
        return text + str(pick(rng, HOSTILE_WORDS))
    word = pick(rng, words)
    own = (pick(rng, words)[0], word[0] + word[0], word[0][:-1], "-" + word[0])
    new = pick(rng, HOSTILE_WORDS) if rng.random() < 0.6 else pick(rng, own)
    return text[: word.start()] + new + text[word.end() :]


def _other_lines(text: str, rng: Rng) -> str:
    lines = text.split("\n")
    at = int(rng.integers(len(lines)))
    way = int(rng.integers(5))
    if way == 0:
        del lines[at]
    elif way == 1:
        lines[at:at] = [lines[at]] * int(rng.integers(1, 200))
    elif way == 2:
        other = int(rng.integers(len(lines)))
        lines[at], lines[other] = lines[other], lines[at]
    elif way == 3:
        lines[at] = pick(rng, (lines[at] + " ", "\t" + lines[at], lines[at] + "\r", ""))
    else:
        lines = lines[:at]
    return "\n".join(lines)


# ------------------------------------------------------------------ JSON


def broken_json(content: bytes, rng: Rng) -> bytes:
    """JSON with values exchanged, removed, repeated or wrapped."""
    value = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        value = _other_value(value, rng)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        inside = one.items() if isinstance(one, dict) else enumerate(one)
        for key, own in inside:
            found.append((one, key))
            if isinstance(own, (dict, list)):
                waiting.append(own)
    return found


def _other_value(value: Any, rng: Rng) -> Any:
    places = _places(value) if isinstance(value, (dict, list)) else []
    if not places or rng.random() < 0.02:
        return copy.deepcopy(pick(rng, HOSTILE_VALUES))
    container, key = pick(rng, places)
    way = rng.random()
    if way < 0.5:
        container[key] = copy.deepcopy(pick(rng, HOSTILE_VALUES))
    elif way < 0.6:
        del container[key]
    elif way < 0.7:
        container[key] = [container[key]]
    elif way < 0.85:
        other, where = pick(rng, places)
        container[key] = json.loads(json.dumps(other[where]))
    elif isinstance(container, list):
        container[key:key] = [container[key]] * int(rng.integers(1, 50))
    else:
        container[str(pick(rng, HOSTILE_WORDS))] = container[key]
    return value


# ------------------------------------------------------------------ arrays


def broken_array(content: bytes, rng: Rng) -> bytes:
    """A .npy file with numbers, its shape, its type or its length changed."""
    array = np.load(io.BytesIO(content))
    if array.dtype.kind not in "fiu":  # broken before
        return broken_bytes([content], rng)
    way = rng.random()
    if way < 0.5 and array.size:
        array = array.copy()
        for at in rng.integers(array.size, size=int(rng.integers(1, 4))).tolist():
            array.reshape(-1)[at] = _element(array, rng)
    elif way < 0.6:
        array = pick(
            rng, (array[:-1], array[::-1], array.repeat(2, axis=0), array[:0], array[..., None])
        )
    elif way < 0.7 and array.size:
        order = rng.permutation(len(array))
        array = array[order]
    elif way < 0.8:
        kind = pick(rng, ("i1", "i2", "i8", "u8", "f4", "f8", "c8", ">i4", "U3", "?"))
        with np.errstate(all="ignore"):
            array = array.astype(kind)
    elif way < 0.9:
        return _other_header(content, rng)
    else:
        return broken_bytes([content], rng)
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _element(array: np.ndarray, rng: Rng) -> Any:
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.dtype.type(pick(rng, HOSTILE_FLOATS))
    limits = np.iinfo(array.dtype)
    near = int(pick(rng, array.reshape(-1).tolist())) + int(rng.integers(-2, 3))
    number = near if rng.random() < 0.5 else pick(rng, HOSTILE_WHOLES)
    return min(max(number, int(limits.min)), int(limits.max))


def _other_header(content: bytes, rng: Rng) -> bytes:
    descr = pick(rng, ("|O", "<i8", "|V9", "<f8", "|b1", "<U1", "<M8[s]"))
    shape = pick(rng, ("(9999999999999,)", "(999999999999, 999999999999)", "()", "(0,)", "(-1,)"))
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return content[:8] + struct.pack("<H", len(header)) + header.encode() + content[128:]


# ------------------------------------------------------------------ zip


def broken_zip(seeds: Sequence[bytes], rng: Rng) -> bytes:
    """A flawless zip of broken entries, or a broken zip of flawless ones."""
    content = pick(rng, seeds)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    if rng.random() < 0.25:
        return _other_container(entries, rng)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(entries)))
        name, own = entries[at]
        try:
            own = broken_json(own, rng) if name.endswith(".json") else broken_array(own, rng)
        except Exception:  # noqa: BLE001 - broken before, in a way that its reader here dislikes
            own = broken_bytes([own or b"\0"], rng)
        entries[at] = (name, own)
    if rng.random() < 0.1:
        one, other = (int(at) for at in rng.integers(len(entries), size=2))
        entries[one] = (entries[one][0], entries[other][1])
    return _zipped(entries)


def _zipped(entries: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def _other_container(entries: list[tuple[str, bytes]], rng: Rng) -> bytes:
    """Entries twice, missing, renamed, compressed, linked; sizes, offsets and flags that lie."""
    way = int(rng.integers(7))
    at = int(rng.integers(len(entries)))
    name, content = entries[at]
    if way == 0:
        content = _renamed_twice(entries, name)
    elif way == 1:
        content = _zipped([*entries[:at], *entries[at + 1 :]])
    elif way == 2:
        other = pick(rng, ("../" + name, "/" + name, name + "/", "\\" + name, name.upper(), "a\0b"))
        content = _zipped(
            [*entries, (other, content)]
            if rng.random() < 0.5
            else [*entries[:at], (other, content), *entries[at + 1 :]]
        )
    elif way == 3:
        method = pick(rng, (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        content = _zipped([*entries, ("bomb.npy", bytes(10**6))], method)
    elif way == 4:
        content = _linked(entries, name)
    else:
        content = _lying(_zipped(entries), rng)
    return content


def _renamed_twice(entries: list[tuple[str, bytes]], name: str) -> bytes:
    """The entry a second time, with other bytes (zipfile itself warns of it)."""
    other = name[:-1] + "\x01"
    return _zipped([*entries, (other, b"[]")]).replace(other.encode(), name.encode())


def _linked(entries: list[tuple[str, bytes]], name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for own, content in entries:
            info = zipfile.ZipInfo(own)
            if own == name:
                info.create_system, info.external_attr = 3, 0o120777 << 16
                archive.writestr(info, b"/etc/passwd")
            else:
                archive.writestr(info, content)
    return stream.getvalue()


def _lying(content: bytes, rng: Rng) -> bytes:
    """Fields of local headers, of the directory and of its end, set to hostile numbers."""
    fields = {b"PK\x03\x04": (26, 4), b"PK\x01\x02": (42, 4), b"PK\x05\x06": (18, 4)}
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        mark = pick(rng, tuple(fields))
        places = [match.start() for match in re.finditer(re.escape(mark), content)]
        at = pick(rng, places) + 4 + 2 * int(rng.integers(fields[mark][0] // 2))
        width = pick(rng, (2, 4))
        number = pick(rng, (0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 8, 12, 14, 99, len(content)))
        changed[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


Damage = Callable[[Sequence[bytes], Rng], bytes]


def mixed(*ways: Damage) -> Damage:
    """Each of the ways as often as the others."""
    return lambda seeds, rng: pick(rng, ways)(seeds, rng)


# ------------------------------------------------------------------ ONNX


def broken_proto(seeds: Sequence[bytes], rng: Rng) -> bytes:
    """An ONNX model with numbers of its attributes, its operators or its names changed."""
    from onnx import ModelProto

    proto = ModelProto()
    proto.ParseFromString(pick(rng, seeds))
    nodes = proto.graph.node
    if len(proto.metadata_props) and rng.random() < 0.3:
        told = pick(rng, proto.metadata_props)
        told.value = broken_text([told.value.encode()], rng).decode("utf-8", "replace")
    for _ in range(int(rng.integers(1, 4))):
        node = nodes[int(rng.integers(len(nodes)))]
        way = rng.random()
        if way < 0.1 and len(proto.graph.initializer):
            _other_tensor(pick(rng, proto.graph.initializer), rng)
        elif way < 0.8 and len(node.attribute):
            _other_attribute(node.attribute[int(rng.integers(len(node.attribute)))], rng)
        elif way < 0.85 and len(node.attribute):
            del node.attribute[int(rng.integers(len(node.attribute)))]
        elif way < 0.9:
            node.op_type = pick(rng, ("Identity", "Cast", "TreeEnsemble", "Loop", "ZipMap", ""))
        elif way < 0.95:
            nodes.append(node)
        else:
            node.input[:] = [pick(rng, (*node.output, *node.input, "", "X"))]
    return bytes(proto.SerializeToString())


def _other_attribute(attribute: Any, rng: Rng) -> None:
    """One attribute of another value, type or length, or in another file."""
    for field, choices in (("ints", HOSTILE_WHOLES), ("floats", HOSTILE_FLOATS)):
        values = getattr(attribute, field)
        if not len(values):
            continue
        at = int(rng.integers(len(values)))
        if rng.random() < 0.7:
            near = pick(rng, values) if rng.random() < 0.5 else pick(rng, choices)
            with np.errstate(over="ignore"):
                values[at] = np.float32(near) if field == "floats" else near
        else:
            values[:] = pick(rng, (values[:at], list(values) * 2, values[::-1]))
    if len(attribute.strings):
        other = (b"BRANCH_EQ", b"LEAF", b"BRANCH_LEQ", b"", b"\xff", b"BRANCH_MEMBER")
        attribute.strings[int(rng.integers(len(attribute.strings)))] = pick(rng, other)
    if attribute.HasField("t"):
        _other_tensor(attribute.t, rng)
    if attribute.HasField("s"):
        attribute.s = pick(rng, (b"SUM", b"MIN", b"SOFTMAX", b"\xff\xfe", b"NONE", b"LOGISTIC"))
    if attribute.HasField("i"):
        attribute.i = pick(rng, HOSTILE_WHOLES)


def _other_tensor(tensor: Any, rng: Rng) -> None:
    """A constant of other bytes, shape or type, or in another file."""
    way = rng.random()
    if way < 0.5:
        tensor.raw_data = broken_bytes([tensor.raw_data or b"\0"], rng)
    elif way < 0.7 and len(tensor.dims):
        tensor.dims[0] = pick(rng, HOSTILE_WHOLES)
    elif way < 0.85:
        tensor.data_type = int(rng.integers(20))
    else:
        tensor.data_location = 1
        tensor.external_data.add(key="location", value="/etc/passwd")
