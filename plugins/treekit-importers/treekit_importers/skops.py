"""Import trees, forests and boosted trees of scikit-learn from skops files.

Files are parsed as data; nothing is imported or called.  skops writes a zip of
``schema.json``, which describes all objects, and of NumPy arrays.  Its own loader would have to
construct scikit-learn's compiled trees and ``functools.partial``, which it does not trust by
default.  Here, attributes are parsed on access only.

Predictions compare with scikit-learn's as stated in `treekit.interop.sklearn`.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit import Model
from treekit.errors import ModelError, ModelFileError, TreekitError
from treekit.interop import beginning
from treekit.interop.sklearn import CLASS_NAMES, read_estimator
from treekit.model.model_file import read_entries

__all__ = ["read_skops", "recognises_skops"]

_MODULE_PREFIXES = ("sklearn.tree.", "sklearn.ensemble.")
"""Prefixes of the modules of `CLASS_NAMES`."""


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
    if name not in CLASS_NAMES or not module.startswith(_MODULE_PREFIXES):
        raise ModelError(
            f"the skops file contains a {module:.60}.{name:.60}; treekit reads "
            f"{', '.join(CLASS_NAMES)}"
        )
    try:
        version = str(getattr(estimator, "_sklearn_version", "unknown"))
        return read_estimator(estimator, name, name, version, dtype, answer)
    except TreekitError:
        raise
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


_MAX_NESTING = 12
"""Maximum nesting of lists in an attribute; scikit-learn's estimators need four."""

_PROTOCOLS = (0, 1, 2)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_HEADER = 4000


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

    @property
    def stored_attributes(self) -> dict[str, Any]:
        """The attributes, as nodes of the schema."""
        return self._attributes

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the plain parameters: attributes that are not set by fitting."""
        del deep
        return {
            name: getattr(self, name)
            for name, node in self._attributes.items()
            if name.strip("_") == name
            and isinstance(node, dict)
            and node.get("__loader__") == "JsonNode"
        }


def _make_stored_tree(state: StoredObject) -> SimpleNamespace:
    """Return the arrays of a ``sklearn.tree._tree.Tree``, as attributes of its names."""
    nodes, values = state.nodes, state.values
    if nodes.ndim != 1 or values.ndim != 3 or len(values) != len(nodes):
        raise ModelFileError("the skops file is damaged: a tree has inconsistent arrays")
    renamed = {"left_child": "children_left", "right_child": "children_right"}
    fields = {renamed.get(name, name): nodes[name] for name in nodes.dtype.names}
    # Before scikit-learn 1.3 there are no missing values.
    fields.setdefault("missing_go_to_left", np.zeros(len(nodes), dtype=np.uint8))
    return SimpleNamespace(
        value=values, __getstate__=lambda: {**state.stored_attributes, "nodes": nodes}, **fields
    )


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
            raise ModelFileError(
                f"the skops file is damaged: the content of a {loader} is not a list"
            )
        return [_build_value(one, entries, depth + 1) for one in content]
    if loader == "ObjectNode":
        return StoredObject(node, entries)
    if loader == "TreeNode":
        return _make_stored_tree(StoredObject(node, entries))
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
    """Read the array of a ``.npy`` entry, of plain numbers, text, or records of numbers."""
    content = entries.get(name, b"")
    first = 12 if content[6:7] == b"\x02" else 10
    end = first + int.from_bytes(content[8:first], "little")
    try:
        if content[:6] != b"\x93NUMPY" or end > _MAX_HEADER:
            raise ValueError("no header")
        header = ast.literal_eval(content[first:end].decode("latin-1").strip())
        dtype = np.lib.format.descr_to_dtype(header["descr"])
        shape = tuple(map(operator.index, header["shape"]))
        parts = [one for one, *_ in dtype.fields.values()] if dtype.fields else [dtype]
        if dtype.itemsize == 0 or any(part.kind not in "biufU" for part in parts):
            raise ValueError("other types")
    except (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError) as error:
        raise ModelFileError(
            f"the skops file is damaged: {name!r:.60} is not an array of plain numbers"
        ) from error
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - end:
        raise ModelFileError(f"the skops file is damaged: {name!r:.60} does not fit shape {shape}")
    array = np.frombuffer(content, dtype=dtype, offset=end)
    if dtype.kind == "U":
        points = array.view(np.dtype("u4").newbyteorder(dtype.byteorder))
        if np.any(points > sys.maxunicode):
            raise ModelFileError(f"the skops file is damaged: {name!r:.60} contains invalid text")
    return array.reshape(shape, order="F" if header.get("fortran_order") else "C")
