"""scikit-learn's trees from files of skops, without skops, and without building an estimator.

What is read, and how the answers compare, is said in `treekit.interop.sklearn`:
the same code reads an estimator and what a file says of one.  Only the classes
of `treekit.interop.sklearn.KINDS` are read, whatever else a file asks to trust.
Reading takes about 10 times the file's size in memory.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError, ModelFileError, TreekitError
from treekit.interop import beginning
from treekit.interop.sklearn import KINDS, ROOMS, read_estimator
from treekit.model.model import Model
from treekit.model.model_file import read_entries

__all__ = [
    "Stored",
    "opened_schema",
    "read_skops",
    "recognises_skops",
]


# ---------------------------------------------------------------- skops

# What damaged parts were seen to raise where they are used.
_DAMAGED = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


def recognises_skops(source: Any) -> bool:
    """Whether `source` is a file of skops (``.skops``)."""
    return beginning(source, (".skops",), 4) == b"PK\x03\x04"


def read_skops(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """The model of a file of skops that holds one of scikit-learn's trees.

    Parameters
    ----------
    source : pathlib.Path
    dtype, answer : str
        As for `treekit.interop.sklearn.read_sklearn`.

    Raises
    ------
    ModelError
        If it holds anything else, is damaged, or has what treekit cannot express.
    """
    if not isinstance(source, Path) or not recognises_skops(source):
        raise ModelError(f"a {type(source).__qualname__} is no file of skops")
    estimator = opened_schema(read_entries(source))
    name, module = estimator.stored_name, estimator.stored_module
    if name not in KINDS or not module.startswith(ROOMS):
        raise ModelError(
            f"the skops file holds a {module:.60}.{name:.60}; treekit reads {', '.join(KINDS)}"
        )
    try:
        version = str(getattr(estimator, "_sklearn_version", "unknown"))
        return read_estimator(estimator, name, name, version, dtype, answer)
    except TreekitError:
        raise
    except _DAMAGED as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


# ---------------------------------------------------------------- skops file
# Files of skops (``.skops``) read as data: nothing of a file is ever imported or called.
#
# skops writes a zip of ``schema.json``, which says what every object is made of,
# and of NumPy arrays.  Its own loader builds the objects, the compiled trees of
# scikit-learn among them, which a malformed array can crash; here an object is
# only what the file says of it, and what no reader asks for is not looked at.

_MAX_NESTING = 12
"""Of lists within an attribute; scikit-learn's need four."""

_PROTOCOLS = (0, 1, 2)
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HEADER = re.compile(
    rb"\{'descr': (.{3,4000}?), 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,12}, ?){0,7}(?:\d{1,12})?)\), \} *\n"
)
_PLAIN = re.compile(rb"'([<|=][biufU]\d{1,5})'")
_FIELDS = re.compile(rb"\[(?:\('\w{0,40}', '[<|=][biufV]\d{1,5}'\)(?:, )?){1,40}\]")
_FIELD = re.compile(rb"\('(\w{0,40})', '([<|=][biufV]\d{1,5})'\)")


class Stored:
    """What a file says of an object: its class by name, and its attributes."""

    __slots__ = ("_entries", "_found", "_of", "stored_module", "stored_name")

    def __init__(self, node: Mapping[str, Any], entries: Mapping[str, bytes]) -> None:
        self.stored_name = str(node.get("__class__"))
        self.stored_module = str(node.get("__module__"))
        self._entries = entries
        self._of: dict[str, Any] = {}
        content = node.get("content")
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            inside = content.get("content")
            self._of = inside if isinstance(inside, dict) else {}
        self._found: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._of:
            raise AttributeError(name)
        if name not in self._found:
            self._found[name] = _value(self._of[name], self._entries, 0)
        return self._found[name]

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Plain parameters: attributes that fitting did not make."""
        del deep
        names = [name for name in self._of if name[:1] != "_" and name[-1:] != "_"]
        loaders = {name: self._of[name] for name in names if isinstance(self._of[name], dict)}
        plain = [name for name, one in loaders.items() if one.get("__loader__") == "JsonNode"]
        return {name: getattr(self, name) for name in plain}


class StoredTree:
    """A ``sklearn.tree._tree.Tree`` as the arrays that it is made of."""

    def __init__(self, state: Stored) -> None:
        nodes, values = state.nodes, state.values
        if nodes.ndim != 1 or values.ndim != 3 or len(values) != len(nodes):
            raise ModelFileError("the skops file is damaged: a tree's arrays do not fit")
        self.node_count = len(nodes)
        self.children_left, self.children_right = nodes["left_child"], nodes["right_child"]
        self.feature, self.threshold = nodes["feature"], nodes["threshold"]
        self.impurity = nodes["impurity"]
        self.weighted_n_node_samples = nodes["weighted_n_node_samples"]
        none = np.zeros(len(nodes), dtype=np.uint8)  # before scikit-learn 1.3
        held = nodes.dtype.names or ()
        self.missing_go_to_left = nodes["missing_go_to_left"] if _MISSING in held else none
        self.value = values


_MISSING = "missing_go_to_left"


def opened_schema(entries: Mapping[str, bytes]) -> Stored:
    """The outermost object of a file's entries.

    Raises
    ------
    ModelFileError
        If there is none, or the file is of a later protocol.
    """
    if "schema.json" not in entries:
        raise ModelFileError("no file of skops: it has no entry 'schema.json'")
    try:
        schema = msgspec.json.decode(entries["schema.json"])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ModelFileError(f"the skops file is damaged: schema.json: {error}") from error
    if not isinstance(schema, dict) or schema.get("__loader__") != "ObjectNode":
        raise ModelFileError("the skops file holds no estimator")
    if schema.get("protocol", 0) not in _PROTOCOLS:
        raise ModelFileError(
            f"the skops file has protocol {schema['protocol']!r:.20}; treekit reads up to 2"
        )
    return Stored(schema, entries)


def _value(node: Any, entries: Mapping[str, bytes], depth: int) -> Any:
    """What a node of the schema stands for; None for what is no data."""
    if not isinstance(node, dict) or depth > _MAX_NESTING:
        raise ModelFileError("the skops file is damaged: an object is none, or nests too deep")
    loader, content = node.get("__loader__"), node.get("content")
    if loader == "JsonNode":
        return _plain(content)
    if loader == "NdArrayNode" and node.get("type") == "numpy":
        return _array(entries, str(node.get("file")))
    if loader in ("ListNode", "TupleNode") or (loader == "NdArrayNode" and content is not None):
        if not isinstance(content, list):
            raise ModelFileError("the skops file is damaged: a list is none")
        return [_value(one, entries, depth + 1) for one in content]
    if loader == "ObjectNode":
        return Stored(node, entries)
    if loader == "TreeNode":
        return StoredTree(Stored(node, entries))
    return None


def _plain(content: Any) -> Any:
    if content in _NUMBERS:
        return _NUMBERS[content]
    try:
        return msgspec.json.decode(str(content))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


def _array(entries: Mapping[str, bytes], name: str) -> npt.NDArray[Any]:
    """The array of a ``.npy`` entry; nothing of its header is evaluated or believed."""
    content = entries.get(name, b"")
    wide = content[6:7] == b"\x02"
    first = 12 if wide else 10
    end = first + int.from_bytes(content[8:first], "little")
    header = _HEADER.fullmatch(content[first:end]) if content[:6] == b"\x93NUMPY" else None
    dtype = _dtype(header[1]) if header else None
    if header is None or dtype is None or dtype.itemsize == 0:
        raise ModelFileError(
            f"the skops file is damaged: {name!r:.60} is no array of plain numbers"
        )
    shape = tuple(int(text) for text in header[3].decode("ascii").replace(",", " ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - end:
        raise ModelFileError(f"the skops file is damaged: {name!r:.60} is not of the shape {shape}")
    array = np.frombuffer(content, dtype=dtype, offset=end)
    if dtype.kind == "U":
        points = np.frombuffer(
            content, dtype=np.dtype("u4").newbyteorder(dtype.byteorder), offset=end
        )
        if np.any(points > sys.maxunicode):
            raise ModelFileError(f"the skops file is damaged: {name!r:.60} holds no text")
    return array.reshape(shape, order="F" if header[2] == b"True" else "C")


def _dtype(told: bytes) -> np.dtype[Any] | None:
    """The type that a header describes: of numbers, of texts, or of fields of numbers."""
    if plain := _PLAIN.fullmatch(told):
        return np.dtype(plain[1].decode("ascii"))
    if not _FIELDS.fullmatch(told):
        return None
    names, formats, offsets, at = [], [], [], 0
    for name, code in _FIELD.findall(told):
        one = np.dtype(code.decode("ascii"))
        if name and name.decode() not in names:  # others are the gaps between fields
            names.append(name.decode("ascii", "replace"))
            formats.append(one)
            offsets.append(at)
        at += one.itemsize
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    return np.dtype(fields)  # type: ignore[call-overload,no-any-return]
