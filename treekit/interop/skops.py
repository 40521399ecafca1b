"""Import scikit-learn trees from skops files, without skops or estimator objects.

`treekit.interop.sklearn` reads the stored attributes like those of an estimator, and
documents how predictions compare.  Only its `CLASS_NAMES` are read, regardless of other
types in a file.  Reading takes about 10 times the file's size in memory.
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
from treekit.interop.sklearn import CLASS_NAMES, MODULE_PREFIXES, read_estimator
from treekit.model.model import Model
from treekit.model.model_file import read_entries

__all__ = [
    "StoredObject",
    "parse_schema",
    "read_skops",
    "recognises_skops",
]


# ---------------------------------------------------------------- estimators

# Exceptions that were observed for damaged attributes.
_DAMAGE_ERRORS = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


def recognises_skops(source: Any) -> bool:
    """Return whether `source` is a skops file (``.skops``)."""
    return beginning(source, (".skops",), 4) == b"PK\x03\x04"


def read_skops(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """Read a skops file with a tree model of scikit-learn.

    Parameters
    ----------
    source : pathlib.Path
    dtype, answer : str
        See `treekit.interop.sklearn.read_sklearn`.

    Raises
    ------
    ModelError
        If it contains another object, is damaged, or uses unsupported features.
    """
    if not isinstance(source, Path) or not recognises_skops(source):
        raise ModelError(f"expected a skops file, got {type(source).__qualname__}")
    estimator = parse_schema(read_entries(source))
    name, module = estimator.stored_name, estimator.stored_module
    if name not in CLASS_NAMES or not module.startswith(MODULE_PREFIXES):
        raise ModelError(
            f"the skops file contains a {module:.60}.{name:.60}; treekit reads "
            f"{', '.join(CLASS_NAMES)}"
        )
    try:
        version = str(getattr(estimator, "_sklearn_version", "unknown"))
        return read_estimator(estimator, name, name, version, dtype, answer)
    except TreekitError:
        raise
    except _DAMAGE_ERRORS as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


# ---------------------------------------------------------------- skops file
# Skops files are parsed as data; nothing is imported or called.
#
# skops writes a zip of ``schema.json``, which describes all objects, and of NumPy
# arrays.  Its loader builds the objects, including scikit-learn's compiled trees, which
# malformed arrays can crash.  Here, attributes are parsed on access only.

_MAX_NESTING = 12
"""Maximum nesting of lists in an attribute; scikit-learn's estimators need four."""

_PROTOCOLS = (0, 1, 2)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NPY_HEADER = re.compile(
    rb"\{'descr': (.{3,4000}?), 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,12}, ?){0,7}(?:\d{1,12})?)\), \} *\n"
)
_DTYPE_PATTERN = re.compile(rb"'([<|=][biufU]\d{1,5})'")
_FIELDS_PATTERN = re.compile(rb"\[(?:\('\w{0,40}', '[<|=][biufV]\d{1,5}'\)(?:, )?){1,40}\]")
_FIELD_PATTERN = re.compile(rb"\('(\w{0,40})', '([<|=][biufV]\d{1,5})'\)")


class StoredObject:
    """An object of a file: the name of its class, and its attributes."""

    __slots__ = ("_attributes", "_entries", "_parsed", "stored_module", "stored_name")

    def __init__(self, node: Mapping[str, Any], entries: Mapping[str, bytes]) -> None:
        self.stored_name = str(node.get("__class__"))
        self.stored_module = str(node.get("__module__"))
        self._entries = entries
        self._attributes: dict[str, Any] = {}
        content = node.get("content")
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            inside = content.get("content")
            self._attributes = inside if isinstance(inside, dict) else {}
        self._parsed: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._attributes:
            raise AttributeError(name)
        if name not in self._parsed:
            self._parsed[name] = _build_value(self._attributes[name], self._entries, 0)
        return self._parsed[name]

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the plain parameters: attributes that are not set by fitting."""
        del deep
        names = [name for name in self._attributes if name[:1] != "_" and name[-1:] != "_"]
        loaders = {
            name: self._attributes[name]
            for name in names
            if isinstance(self._attributes[name], dict)
        }
        plain = [name for name, one in loaders.items() if one.get("__loader__") == "JsonNode"]
        return {name: getattr(self, name) for name in plain}


class StoredTree:
    """The arrays of a ``sklearn.tree._tree.Tree``."""

    def __init__(self, state: StoredObject) -> None:
        nodes, values = state.nodes, state.values
        if nodes.ndim != 1 or values.ndim != 3 or len(values) != len(nodes):
            raise ModelFileError("the skops file is damaged: a tree has inconsistent arrays")
        self.node_count = len(nodes)
        self.children_left, self.children_right = nodes["left_child"], nodes["right_child"]
        self.feature, self.threshold = nodes["feature"], nodes["threshold"]
        self.impurity = nodes["impurity"]
        self.weighted_n_node_samples = nodes["weighted_n_node_samples"]
        none = np.zeros(len(nodes), dtype=np.uint8)  # the field is absent before scikit-learn 1.3
        field_names = nodes.dtype.names or ()
        self.missing_go_to_left = (
            nodes["missing_go_to_left"] if _MISSING_FIELD in field_names else none
        )
        self.value = values


_MISSING_FIELD = "missing_go_to_left"


def parse_schema(entries: Mapping[str, bytes]) -> StoredObject:
    """Parse the outermost object of a file's entries.

    Raises
    ------
    ModelFileError
        If there is none, or the file has a later protocol.
    """
    if "schema.json" not in entries:
        raise ModelFileError("not a skops file: no entry 'schema.json'")
    try:
        schema = msgspec.json.decode(entries["schema.json"])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ModelFileError(f"the skops file is damaged: schema.json: {error}") from error
    if not isinstance(schema, dict) or schema.get("__loader__") != "ObjectNode":
        raise ModelFileError("the skops file contains no estimator")
    if schema.get("protocol", 0) not in _PROTOCOLS:
        raise ModelFileError(
            f"the skops file has protocol {schema['protocol']!r:.20}; treekit reads up to 2"
        )
    return StoredObject(schema, entries)


def _build_value(node: Any, entries: Mapping[str, bytes], depth: int) -> Any:
    """Return the value of a node of the schema; None for unsupported kinds."""
    if not isinstance(node, dict) or depth > _MAX_NESTING:
        raise ModelFileError("the skops file is damaged: an object is invalid, or nested too deep")
    loader, content = node.get("__loader__"), node.get("content")
    if loader == "JsonNode":
        return _parse_json_text(content)
    if loader == "NdArrayNode" and node.get("type") == "numpy":
        return _read_array(entries, str(node.get("file")))
    if loader in ("ListNode", "TupleNode") or (loader == "NdArrayNode" and content is not None):
        if not isinstance(content, list):
            raise ModelFileError("the skops file is damaged: a list is invalid")
        return [_build_value(one, entries, depth + 1) for one in content]
    if loader == "ObjectNode":
        return StoredObject(node, entries)
    if loader == "TreeNode":
        return StoredTree(StoredObject(node, entries))
    return None


def _parse_json_text(content: Any) -> Any:
    """Parse a value that is stored as JSON text."""
    if content in _NON_FINITE:
        return _NON_FINITE[content]
    try:
        return msgspec.json.decode(str(content))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


def _read_array(entries: Mapping[str, bytes], name: str) -> npt.NDArray[Any]:
    """Read the array of a ``.npy`` entry, without evaluating or trusting its header."""
    content = entries.get(name, b"")
    wide = content[6:7] == b"\x02"
    first = 12 if wide else 10
    end = first + int.from_bytes(content[8:first], "little")
    header = _NPY_HEADER.fullmatch(content[first:end]) if content[:6] == b"\x93NUMPY" else None
    dtype = _parse_dtype(header[1]) if header else None
    if header is None or dtype is None or dtype.itemsize == 0:
        raise ModelFileError(
            f"the skops file is damaged: {name!r:.60} is not an array of plain numbers"
        )
    shape = tuple(int(text) for text in header[3].decode("ascii").replace(",", " ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - end:
        raise ModelFileError(f"the skops file is damaged: {name!r:.60} does not fit shape {shape}")
    array = np.frombuffer(content, dtype=dtype, offset=end)
    if dtype.kind == "U":
        points = np.frombuffer(
            content, dtype=np.dtype("u4").newbyteorder(dtype.byteorder), offset=end
        )
        if np.any(points > sys.maxunicode):
            raise ModelFileError(f"the skops file is damaged: {name!r:.60} contains invalid text")
    return array.reshape(shape, order="F" if header[2] == b"True" else "C")


def _parse_dtype(description: bytes) -> np.dtype[Any] | None:
    """Parse the dtype of a header: numbers, text, or records of numbers."""
    if plain := _DTYPE_PATTERN.fullmatch(description):
        return np.dtype(plain[1].decode("ascii"))
    if not _FIELDS_PATTERN.fullmatch(description):
        return None
    names, formats, offsets, at = [], [], [], 0
    for name, code in _FIELD_PATTERN.findall(description):
        one = np.dtype(code.decode("ascii"))
        if name and name.decode() not in names:  # unnamed fields are padding
            names.append(name.decode("ascii", "replace"))
            formats.append(one)
            offsets.append(at)
        at += one.itemsize
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    return np.dtype(fields)  # type: ignore[call-overload,no-any-return]
