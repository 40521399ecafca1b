"""``language.toml``: what treekit must know of a language to write models in it.

A language is a folder of templates and this file::

    suffix = ".pl"
    summary = "Perl, no modules"
    files = { ".pl" = "module.jinja" }
    abilities = ["sums", "costs", "targets"]

    [literals]
    strings = "bytes"

    [verify]
    needs = ["perl"]
    files = { "driver.pl" = "driver.jinja" }
    artifact = "m{number}.pm"
    run = ["perl", "driver.pl"]

Whatever is left out has the default of the record that it fills.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from treekit.errors import ExportError
from treekit.export.language import Language

__all__ = ["PROFILE", "Profile", "TextSetting", "Verify", "read_profile"]

PROFILE = "language.toml"


@dataclass(frozen=True)
class TextSetting:
    """A setting of a target: a name that templates may write.

    Attributes
    ----------
    help, default : str
    accepts : {"identifier", "dotted"}
        One identifier, or several with dots between them; empty is always accepted.
    """

    help: str
    default: str = ""
    accepts: str = "identifier"


@dataclass(frozen=True)
class Verify:
    """How files of the language are run; each command a list of words, none by a shell.

    In commands ``{python}`` is this Python; in `artifact` ``{number}`` counts the
    artifacts of a program, and ``{name}`` is the file's own name.

    Attributes
    ----------
    needs : tuple of str
        Programs on the PATH, or importable Python modules.
    files : mapping
        Templates of the driver, by the name of the file to make.
    run : tuple of str
        The driver; what it reads and writes tells `treekit.verify.run_language`.
    artifact : str
        Where an artifact lies in the folder of the driver.
    build : tuple of tuples of str
        Commands before it.
    version : tuple of str
        Command that tells the version.
    find : mapping
        Regular expressions of one group; what they find in an artifact, letters, digits,
        dots and underscores, is what the driver's templates have under their names.
    text : {"utf-8", "utf-16-le"}
        In which texts go to and fro.
    """

    needs: tuple[str, ...]
    files: Mapping[str, str]
    run: tuple[str, ...]
    artifact: str = "m{number}"
    build: tuple[tuple[str, ...], ...] = ()
    version: tuple[str, ...] = ()
    find: Mapping[str, str] = field(default_factory=dict)
    text: str = "utf-8"


@dataclass(frozen=True)
class Profile:
    """What ``language.toml`` says.

    Attributes
    ----------
    name, suffix, summary : str
        Of the target; the name is the folder's.
    files : mapping
        Template of each file by its ending, the main one first.
    abilities : tuple of str
        See `treekit.export.values.ABILITIES`.
    forms : tuple of str
        "table", and "if_else" if templates have that, too.
    leaf_nodes : bool
        See `treekit.export.values.template_values`.
    file_name : {"any", "identifier"}
        Whether the name of the file is one in the language.
    literals : Language
    settings : mapping of str to TextSetting
    verify : Verify, or None
    """

    name: str
    suffix: str
    summary: str
    files: Mapping[str, str]
    abilities: tuple[str, ...] = ()
    forms: tuple[str, ...] = ("table",)
    leaf_nodes: bool = False
    file_name: str = "any"
    literals: Language = field(default_factory=lambda: Language(strings="json"))
    settings: Mapping[str, TextSetting] = field(default_factory=dict)
    verify: Verify | None = None


def read_profile(folder: Path) -> Profile:
    """Read and check the profile in a language's folder.

    Raises
    ------
    ExportError
        If it is absent, no TOML, or says something unknown or ill-typed.
    """
    path = folder / PROFILE
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no UTF-8, no TOML, too nested
        raise ExportError(f"cannot read {str(path)!r}: {error}") from error
    literals = told.get("literals")
    if isinstance(literals, dict) and "limits" in told:
        told["literals"] = literals | {"limits": told.pop("limits")}
    profile: Profile = _record(Profile, {"name": folder.name} | told, path, "")
    _check_choices(profile, path)
    return profile


def _check_choices(profile: Profile, path: Path) -> None:
    texts = {profile.verify.text} if profile.verify else set()
    accepts = {setting.accepts for setting in profile.settings.values()}
    for what, told, known in (
        ("forms", set(profile.forms), {"table", "if_else"}),
        ("file_name", {profile.file_name}, {"any", "identifier"}),
        ("verify.text", texts, {"utf-8", "utf-16-le"}),
        ("settings.accepts", accepts, {"identifier", "dotted"}),
    ):
        if other := sorted(told - known):
            raise _fault(path, what, f"{other[0]!r}; it is one of {', '.join(sorted(known))}")
    own = {"form", "templates", "model", "target", "path"}
    if taken := sorted(own & set(profile.settings)):
        raise _fault(path, f"settings.{taken[0]}", "treekit's own; call it otherwise")
    if "table" not in profile.forms or not profile.files:
        raise _fault(path, "forms and files", "too few; a language has form 'table' and a file")
    if profile.suffix != next(iter(profile.files)):
        raise _fault(path, "suffix", f"{profile.suffix!r}, not the ending of the first file")


def _record(kind: type[Any], told: Any, path: Path, where: str) -> Any:
    """A record of the type `kind` made of a table, its fields checked by their types."""
    if not isinstance(told, dict):
        raise _fault(path, where, f"{told!r}; it is a table")
    hints = _hints(cast(Any, kind))
    if unknown := sorted(set(told) - set(hints)):
        known = ", ".join(hints)
        raise _fault(path, where + unknown[0], f"not known; known here: {known}")
    for each in fields(kind):
        required = each.default is MISSING and each.default_factory is MISSING
        if required and each.name not in told:
            raise _fault(path, where + each.name, "missing")
    return kind(**{n: _value(hints[n], value, path, where + n) for n, value in told.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, told: Any, path: Path, where: str) -> Any:
    """A value of the type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _record(hint, told, path, f"{where}.")
    if type(None) in arguments:
        return _value(arguments[0], told, path, where)
    if origin in (tuple, frozenset) and isinstance(told, list):
        return origin(_value(arguments[0], one, path, where) for one in told)
    if origin is Mapping and isinstance(told, dict):
        return {n: _value(arguments[1], one, path, f"{where}.{n}") for n, one in told.items()}
    if origin not in (None, tuple, frozenset, Mapping) and told in arguments:  # Literal
        return told
    if isinstance(hint, type) and type(told) is hint:
        return told
    wanted = f"one of {', '.join(map(repr, arguments))}" if arguments else hint.__name__
    raise _fault(path, where, f"{told!r}; it is {wanted}")


def _fault(path: Path, where: str, what: str) -> ExportError:
    return ExportError(f"{str(path)!r}: {where.rstrip('.')} is {what}")
