"""Functions, classes and values as text lines that are independent of module paths.

Classes are shown by name, without modules and addresses.  Objects without a source
representation are shown by the names of their types.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import types
from collections.abc import Mapping
from types import NoneType
from typing import Any, ForwardRef, Union, get_args, get_origin

from treekit.contracts import Setting

__all__ = ["call_lines", "class_lines", "entry_lines", "is_own", "value_text"]

LINE = 100
"""Maximum length of a one-line signature; longer ones have one parameter per line."""

_SPECIAL_METHODS = frozenset(
    (
        *("__bool__", "__call__", "__contains__", "__enter__", "__exit__", "__getitem__"),
        *("__iter__", "__len__", "_repr_html_", "_repr_svg_"),
    )
)
_NOT_BASES = (object, tuple)
_UNKNOWN = object()


def value_text(value: Any) -> str:
    """Format a value as in source code, or as the name of its type in angle brackets."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(value_text, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(value_text, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{value_text(k)}: {value_text(value[k])}' for k in value)}}}"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    if names := field_names(type(value)):
        texts = (f"{name}={value_text(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({', '.join(texts)})"
    return f"<{type(value).__name__}>"


def annotation_text(annotation: Any) -> str:
    """Format an annotation without module names."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if get_origin(annotation) is Union:  # written so by Python 3.14 only
        parts = get_args(annotation)
        return " | ".join("None" if one is NoneType else annotation_text(one) for one in parts)
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    parts = re.split(r"('[^']*'|\"[^\"]*\")", annotation)  # keep strings of a Literal
    parts[::2] = [re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", part) for part in parts[::2]]
    return "".join(parts)


# ------------------------------------------------------------------ functions


def call_lines(head: str, function: Any, *, bound: bool = False, ends: bool = True) -> list[str]:
    """Format a head and the signature of a callable.

    Parameters
    ----------
    head : str
        Text before the parenthesis, with its indentation.
    function : callable
    bound : bool
        Omit the first parameter, ``self`` or ``cls``.
    ends : bool
        Include the return type.
    """
    try:
        signature = inspect.signature(getattr(function, "py_func", function))
    except (TypeError, ValueError):  # C function without a signature
        return [f"{head}(...)"]
    if bound:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    texts, end = _parameter_texts(signature), ""
    if ends and signature.return_annotation is not signature.empty:
        end = f" -> {annotation_text(signature.return_annotation)}"
    line = f"{head}({', '.join(texts)}){end}"
    if len(line) <= LINE:
        return [line]
    indent = " " * (len(head) - len(head.lstrip()))
    return [f"{head}(", *(f"{indent}    {text}" for text in texts), f"{indent}){end}"]


def _parameter_texts(signature: inspect.Signature) -> list[str]:
    """Format the parameters, with ``/`` and ``*`` as separate entries."""
    parameters = list(signature.parameters.values())
    kinds = [parameter.kind for parameter in parameters]
    texts = [_parameter_text(parameter) for parameter in parameters]
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY
    if keyword in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(keyword), "*")
    if positional in kinds:
        texts.insert(kinds.count(positional), "/")
    return texts


def _parameter_text(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {annotation_text(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    made = repr(parameter.default) == "<factory>"  # of a dataclass
    return f"{text} = {'<factory>' if made else value_text(parameter.default)}"


# ------------------------------------------------------------------ classes


def is_own(cls: type) -> bool:
    """Whether treekit defines the class."""
    return cls.__module__.partition(".")[0] == "treekit"


def class_lines(head: str, cls: type, public: Mapping[int, str]) -> list[str]:
    """Format a class: kind, bases, constructor, fields and members.

    Parameters
    ----------
    head : str
    cls : type
    public : mapping of int to str
        Identities of public classes; a private base class of treekit is replaced by its own
        bases.
    """
    bases = ", ".join(_base_names(cls, public))
    lines = [f"{head}: {_kind(cls)}" + (f" of {bases}" if bases else "")]
    if issubclass(cls, enum.Enum):
        return lines + [f"    {one.name} = {value_text(one.value)}" for one in cls]
    own = [base for base in cls.__mro__ if is_own(base)]
    fields, members = field_names(cls), _members(cls)
    if fields or any({"__init__", "__new__"} & vars(base).keys() for base in own):
        lines += call_lines("    constructor", cls, ends=False)
    if set(fields) != set(inspect.signature(cls).parameters if fields else ()):
        lines.append(f"    fields: {', '.join(fields)}")
    known = {name for base in own for name in _documented_attributes(base)}
    members |= dict.fromkeys(known - members.keys() - set(fields))
    return lines + [
        line for name in sorted(members) for line in _member_lines(cls, name, members[name])
    ]


def field_names(cls: type) -> tuple[str, ...]:
    """Return the field names of a dataclass, a NamedTuple or a msgspec Struct."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    names = getattr(cls, "__struct_fields__", getattr(cls, "_fields", ()))
    return tuple(names) if isinstance(names, tuple) else ()


def _kind(cls: type) -> str:
    if dataclasses.is_dataclass(cls):
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return "frozen dataclass" if frozen else "dataclass"
    if hasattr(cls, "__struct_config__"):
        return "frozen struct" if cls.__struct_config__.frozen else "struct"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "named tuple"
    return "enumeration" if issubclass(cls, enum.Enum) else "class"


def _base_names(cls: type, public: Mapping[int, str]) -> list[str]:
    names: list[str] = []
    for base in cls.__bases__:
        if is_own(base) and id(base) not in public:
            names += _base_names(base, public)
        elif base not in _NOT_BASES and not base.__module__.startswith("msgspec"):
            names.append(base.__name__)
    return list(dict.fromkeys(names))


def _members(cls: type) -> dict[str, Any]:
    """Return the members defined by treekit's classes by name, including inherited ones."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if is_own(base):
            found |= dict.fromkeys(inspect.get_annotations(base)) | vars(base)
    fields = field_names(cls)
    return {
        name: value
        for name, value in found.items()
        if (not name.startswith("_") or name in _SPECIAL_METHODS)
        and name not in fields
        # scikit-learn adds methods to estimators, which depend on its version.
        and not type(value).__module__.startswith("sklearn")
    }


def _member_lines(cls: type, name: str, value: Any) -> list[str]:
    if isinstance(value, classmethod | staticmethod):
        kind = type(value).__name__
        return call_lines(f"    {kind} {name}", value.__func__, bound=kind == "classmethod")
    if inspect.isfunction(value) or hasattr(value, "py_func"):
        return call_lines(f"    {name}", value, bound=True)
    if isinstance(value, property | functools.cached_property):
        getter = value.fget if isinstance(value, property) else value.func
        settable = isinstance(value, property) and value.fset is not None
        annotation = inspect.get_annotations(getter).get("return", _UNKNOWN)
        return [f"    property {name}{_after_colon(annotation)}{' (settable)' * settable}"]
    if isinstance(value, type):
        return [f"    class {name}"]
    if value is not None and not inspect.isdatadescriptor(value):
        return [f"    constant {name} = {value_text(value)}"]
    annotations = (inspect.get_annotations(base) for base in cls.__mro__ if is_own(base))
    annotation = next((own[name] for own in annotations if name in own), _UNKNOWN)
    return [f"    attribute {name}{_after_colon(annotation)}"]


def _after_colon(annotation: Any) -> str:
    return "" if annotation is _UNKNOWN else f": {annotation_text(annotation)}"


def _documented_attributes(cls: type) -> list[str]:
    """List the names in the Attributes section of a NumPy-style docstring."""
    doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
    section = re.search(r"^Attributes\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", doc, re.M | re.S)
    heads = re.findall(r"^(\w[\w, ]*?)(?: : .*)?$", section[1], re.M) if section else []
    return [name.strip() for head in heads for name in head.split(",")]


# ------------------------------------------------------------------ names


def entry_lines(name: str, value: Any, public: Mapping[int, str]) -> list[str]:
    """Format the object of a public name."""
    if isinstance(value, type):
        return class_lines(name, value, public)
    if isinstance(value, types.ModuleType):
        return [f"{name} is a module"]
    if inspect.isroutine(value) or hasattr(value, "py_func"):
        return call_lines(name, value)
    if getattr(value, "__args__", None):  # an alias of a type
        return [f"{name} = {annotation_text(value)}"]
    if isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()):
        return [f"{name}:", *(f"    {key!r}: {value[key]!r}" for key in sorted(value))]
    if isinstance(value, tuple) and value and all(isinstance(one, Setting) for one in value):
        return [f"{name}:", *sorted(f"    setting {one.name}" for one in value)]
    return [f"{name} = {value_text(value)}"]
