"""Built-in exporters, and those defined by a folder of templates and a profile.

A template folder (shipped or given) that contains
``NAME/language.toml`` defines the target NAME; the first such folder wins.  The
templates of the target are looked up in all folders, in that order, so that
a folder with one template replaces only that one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from treekit import registry
from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export.literals import (
    Code,
    Language,
    Limits,
    identifier,
    list_shipped_folders,
    list_template_folders,
    render_from,
    require_folder,
)
from treekit.export.lowering import Form, lower_unless_fractional
from treekit.export.onnx import ONNX_SETTINGS
from treekit.export.readable import (
    add_reason,
    explain_replaced,
    explain_unreadable,
    readable_values,
    require_readable,
)
from treekit.export.template_values import ABILITIES, needs, template_values
from treekit.export.triton import TRITON_SETTINGS, TRITON_SUFFIX
from treekit.hookspecs import hookimpl
from treekit.model.model import Model
from treekit.registry.kinds import KINDS, check_record
from treekit.rules import RULES_SETTINGS

# ---------------------------------------------------------------- languages

TEMPLATES_SETTING = Setting("templates", "", "folder whose templates replace the shipped ones")
_NAME_PATTERNS = {
    "identifier": r"[A-Za-z_][A-Za-z0-9_]*",
    "dotted": r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
}


@dataclass(frozen=True)
class LanguageExport:
    """Export function of a `treekit.Exporter` that is defined by a language folder.

    Attributes
    ----------
    profile : Profile
    folder : Path
        Parent of the language folder.
    """

    profile: Profile
    folder: Path

    def list_folders(self, templates: str = "") -> list[Path]:
        """Return the folders in which templates are looked up, in order."""
        own = find_languages_folder(templates, self.profile.name) if templates else ""
        found = list_template_folders(own)
        return found if self.folder in found else [*found, self.folder]

    def __call__(
        self,
        model: Model,
        stem: str,
        *,
        templates: str = "",
        form: str = "auto",
        **given: Any,
    ) -> dict[str, bytes]:
        """Export a model; see `treekit.Exporter`."""
        profile = self.profile
        require_abilities(model, profile.name, profile.abilities)
        if profile.file_name == "class":
            stem = "".join(part[:1].upper() + part[1:] for part in stem.split("_")) or stem
        made = str(profile.literals.name(stem, "model"))
        if profile.file_name != "any" and stem != made:
            raise ExportError(
                f"{stem + profile.suffix!r}: in {profile.name} the file name must be an "
                f"identifier: rename it to {made + profile.suffix!r}"
            )
        folders, unreadable = self.list_folders(templates), ""
        trees = lower_unless_fractional(model)
        readable = bool(profile.readable) and form in ("auto", "readable")
        if readable:
            unreadable = explain_unreadable(model, trees) or explain_replaced(folders, profile.name)
            unreadable = require_readable(form, unreadable)
        if readable and not unreadable:
            files = profile.readable
            values = readable_values(model, trees[0], stem, profile.literals)
        else:
            files = profile.files
            own = (profile.literals, profile.forms, "auto" if form == "full" else form)
            leaf_nodes, cells = profile.leaf_nodes, profile.cells
            values = template_values(
                model, stem, *own, leaf_nodes=leaf_nodes, cells=cells, trees=trees
            )
            values["reason"] = add_reason(values["reason"], unreadable)
        for name, setting in profile.settings.items():
            values[name] = self._check_name(name, given.get(name, setting.default))
        return {
            f"{stem}{ending}": render_from(folders, f"{profile.name}/{file}", **values)
            for ending, file in files.items()
        }

    def _check_name(self, name: str, text: str) -> Code:
        """Check the value of a profile setting, which is a name in the language."""
        profile = self.profile
        accepts, reserved = profile.settings[name].accepts, profile.literals.reserved
        if text and not re.fullmatch(_NAME_PATTERNS[accepts], text, re.ASCII):
            raise ExportError(
                f"{name}={text!r} is not a valid {accepts} name in {profile.name}; "
                "use ASCII letters, digits and _, no digit first"
            )
        if taken := [word for word in text.split(".") if word in reserved]:
            raise ExportError(f"{name}={text!r}: rename {taken[0]!r}, reserved by {profile.name}")
        return Code(text)


def require_abilities(model: Model, target: str, able: frozenset[str] | tuple[str, ...]) -> None:
    """Raise `ExportError` if a model needs an ability that is not among `able`."""
    for ability in needs(model):
        if ability not in able:
            raise ExportError(
                f"the target {target!r} does not support {ABILITIES[ability]}, which this model "
                "needs: export to another target"
            )


def language_exporter(folder: str | Path) -> Exporter:
    """Make an exporter of a language folder: templates and ``language.toml``.

    >>> language_exporter(Path(__file__).with_name("templates") / "zig")

    Raises
    ------
    ExportError
        If the profile is missing or invalid.
    """
    folder = Path(folder)
    profile = read_profile(folder)
    settings = _make_form_setting(profile)
    settings += [Setting(name, own.default, own.help) for name, own in profile.settings.items()]
    export = LanguageExport(profile, folder.parent)
    given = (*settings, TEMPLATES_SETTING)
    return Exporter(profile.name, profile.suffix, export, given, profile.summary)


_READABLE_WORDS = (
    "readable: nested tests only, for one small tree; all other forms have probabilities, "
    "leaves and all columns; auto: readable if possible, else full"
)


def _make_form_setting(profile: Profile) -> list[Setting]:
    """Return the setting ``form`` of a language with several forms."""
    written = "if_else: nested tests; table: tables and a short loop; "
    forms = [form for form in ("if_else", "table") if form in profile.forms]
    if profile.readable:
        chosen = f"{written}full: if_else for small models; " if len(forms) > 1 else ""
        words = chosen + _READABLE_WORDS
        return [Setting("form", "auto", words, choices=("auto", "readable", "full", *forms))]
    if len(forms) > 1:
        words = f"{written}auto: if_else for small models"
        return [Setting("form", "auto", words, choices=("auto", *forms))]
    return []


def load_languages(
    folder: str | Path, report: Callable[[str], None] | None = None
) -> list[Exporter]:
    """Make the exporters of all languages in a folder: one for each ``NAME/language.toml``.

    Parameters
    ----------
    folder : str or Path
    report : callable, optional
        Called with a message for each invalid language, which is left out.

    Raises
    ------
    ExportError
        If a language is invalid and `report` is not given.
    """
    found = []
    for path in sorted(Path(folder).glob(f"*/{PROFILE_FILE}")):
        try:
            exporter = language_exporter(path.parent)
            check_record(exporter, KINDS["exporter"])
            found.append(exporter)
        except (ExportError, PluginError) as error:
            fault = str(error) if isinstance(error, ExportError) else f"{str(path)!r}: {error}"
            if report is None:
                raise ExportError(fault) from error
            report(fault)
    return found


def find_languages_folder(templates: str | Path, target: str = "") -> Path:
    """Return `templates`, or its parent if `templates` is itself a language folder.

    Parameters
    ----------
    templates : str or Path
    target : str
        Name of the requested language, if any.

    Raises
    ------
    ExportError
        If the folder does not exist.
    """
    require_folder(templates)
    folder = Path(templates)
    name = folder.resolve().name
    itself = (folder / PROFILE_FILE).is_file() and target in ("", name)
    return folder.resolve().parent if itself else folder


def find_exporter(target: str, settings: Mapping[str, Any]) -> Exporter:
    """Find an exporter by name, first in the folder of the setting ``templates``.

    Raises
    ------
    ExportError
        If the folder is missing, or its profile is invalid.
    SettingError
        If no target has the name.
    """
    templates = settings.get("templates", "")
    if not isinstance(templates, str) or not templates:
        return registry.get("exporter", target)
    folder = find_languages_folder(templates, target)
    if identifier(target, "") == target and (folder / target / PROFILE_FILE).is_file():
        return language_exporter(folder / target)
    try:
        return registry.get("exporter", target)
    except SettingError as error:
        raise SettingError(
            f"{error}; the folder {templates!r} has no {target}/{PROFILE_FILE}"
        ) from None


# ---------------------------------------------------------------- profile
# A language is a folder of templates and a profile, ``language.toml``::
#
#     suffix = ".pl"
#     summary = "Perl, no modules"
#     files = { ".pl" = "module.jinja" }
#     abilities = ["sums", "costs", "targets"]
#
#     [literals]
#     strings = "bytes"
#
#     [verify]
#     needs = ["perl"]
#     files = { "driver.pl" = "driver.jinja" }
#     artifact = "m{number}.pm"
#     run = ["perl", "driver.pl"]
#
# Missing keys have the defaults of the records below.

PROFILE_FILE = "language.toml"


@dataclass(frozen=True)
class TextSetting:
    """Setting of a target: a name that templates may write.

    Attributes
    ----------
    help, default : str
    accepts : {"identifier", "dotted"}
        One identifier, or several separated by dots; empty is always accepted.
    """

    help: str
    default: str = ""
    accepts: Literal["identifier", "dotted"] = "identifier"


@dataclass(frozen=True)
class Verify:
    """Commands that run exported files of the language, each a list of words without a shell.

    In commands and `needs` ``{python}`` is the running Python; in `artifact` ``{number}``
    counts the artifacts of a program, and ``{name}`` is the name of the file.

    Attributes
    ----------
    needs : tuple of str
        Programs on the PATH, or importable Python modules.
    files : mapping
        Templates of the driver, by the name of the file to write.
    run : tuple of str
        Command of the driver; see `treekit.verify.run_language` for its input and output.
    artifact : str
        Path of an artifact in the folder of the driver.
    build : tuple of tuples of str
        Commands to execute before `run`.
    version : tuple of str
        Command that prints the version.
    find : mapping
        Regular expressions with one group, by name.  The match in an artifact (letters,
        digits, dots and underscores) is passed to the driver's templates under that name.
    text : {"utf-8", "utf-16-le"}
        Encoding of the texts exchanged with the driver.
    readable : mapping
        As `files`, for artifacts of the readable form.
    start : str
        Regular expression that the start of an artifact matches, and of no other language's, for
        files without the language's suffix; "." matches line ends, too.  "" = none.
    readable_columns : str
        Regular expression that finds the identifier and the number of each column that an
        artifact of the readable form takes, in its order; "" = it takes columns by name.
    """

    needs: tuple[str, ...]
    files: Mapping[str, str]
    run: tuple[str, ...]
    artifact: str = "m{number}"
    build: tuple[tuple[str, ...], ...] = ()
    version: tuple[str, ...] = ()
    find: Mapping[str, str] = field(default_factory=dict)
    text: Literal["utf-8", "utf-16-le"] = "utf-8"
    start: str = ""
    readable: Mapping[str, str] = field(default_factory=dict)
    readable_columns: str = ""


@dataclass(frozen=True)
class Profile:
    """Content of ``language.toml``.

    Attributes
    ----------
    name, suffix, summary : str
        Properties of the target; the name is that of the folder.
    files : mapping
        Template of each file by its suffix, the main file first.
    readable : mapping
        Templates of the form for readers, see `treekit.export.readable`, by suffix; empty
        if the language has none.
    abilities : tuple of str
        See `treekit.export.template_values.ABILITIES`.
    forms : tuple of str
        "table", and "if_else" if the templates support it.
    leaf_nodes, cells : bool
        See `treekit.export.template_values.template_values`.
    file_name : {"any", "identifier", "class"}
        Whether the file name must be an identifier of the language, or is made that of a
        class: ``Iris`` of ``iris``.
    literals : Language
    settings : mapping of str to TextSetting
    verify : Verify, or None
    """

    name: str
    suffix: str
    summary: str
    files: Mapping[str, str]
    readable: Mapping[str, str] = field(default_factory=dict)
    abilities: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ("table",)
    leaf_nodes: bool = False
    cells: bool = False
    file_name: Literal["any", "identifier", "class"] = "any"
    literals: Language = field(default_factory=lambda: Language(strings="json"))
    settings: Mapping[str, TextSetting] = field(default_factory=dict)
    verify: Verify | None = None


def read_profile(folder: Path) -> Profile:
    """Read and check the profile in a language folder.

    Raises
    ------
    ExportError
        If it is missing, not TOML, or has an unknown key or a value of the wrong type.
    """
    path = folder / PROFILE_FILE
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not UTF-8, not TOML, too nested
        raise ExportError(f"cannot read {str(path)!r}: {error}") from error
    literals = table.get("literals")
    if isinstance(literals, dict) and "limits" in table:
        table["literals"] = literals | {"limits": table.pop("limits")}
    try:
        profile = msgspec.convert({"name": folder.name} | table, Profile)
    except msgspec.ValidationError as error:
        raise ExportError(f"{str(path)!r}: {error}; see treekit.export.languages") from error
    if problem := _find_profile_problem(profile, table):
        raise ExportError(f"{str(path)!r}: {problem}")
    return profile


_BUILT_IN_NAMES = {"form", "templates", "model", "target", "path"}


def _find_profile_problem(profile: Profile, table: dict[str, Any]) -> str:
    """Return what is wrong with a profile whose values have the right types; empty if nothing."""
    literals = table.get("literals", {})
    settings = table.get("settings", {})
    records = [
        ("", Profile, table),
        ("literals.", Language, literals),
        ("literals.limits.", Limits, literals.get("limits", {})),
        ("verify.", Verify, table.get("verify", {})),
        *((f"settings.{name}.", TextSetting, own) for name, own in settings.items()),
    ]
    for where, kind, own in records:
        known = [field.name for field in fields(kind)]
        if unknown := sorted(set(own) - set(known)):
            return f"{where}{unknown[0]} is unknown; known here: {', '.join(known)}"
    if unknown := sorted(set(profile.abilities) - set(ABILITIES)):
        return f"unknown ability {unknown[0]!r}; known: {', '.join(ABILITIES)}"
    if taken := sorted(_BUILT_IN_NAMES & set(profile.settings)):
        return f"settings.{taken[0]} is a built-in setting; rename it"
    if "table" not in profile.forms or not profile.files:
        return "form 'table' or files is missing; add both"
    if profile.suffix != next(iter(profile.files)):
        return f"suffix is {profile.suffix!r}; name that of the first file"
    return ""


# ---------------------------------------------------------------- built-in exporters
# They are registered through the same hook as those of plugins; the libraries of an exporter
# are imported when it is first used.

_C_SETTINGS = (
    Setting(
        "form",
        "auto",
        "if_else: nested tests; table: tables and a short loop; hybrid: both; compact: tables of "
        "few bytes, for little flash; full: if_else up to 2,000 nodes, beyond them hybrid for "
        "fewer than 8 trees, else table; "
        f"{_READABLE_WORDS}",
        choices=("auto", "readable", "full", "if_else", "hybrid", "table", "compact"),
    ),
    Setting(
        "input",
        "double",
        "type of the cells of a row; float only for models whose input type is float32",
        choices=("double", "float"),
    ),
    Setting(
        "arithmetic",
        "float",
        "integer: no floating point; rows and predictions are integers",
        choices=("float", "integer"),
    ),
    TEMPLATES_SETTING,
)


def _import_later(module: str, function: str) -> Callable[..., Any]:
    """Return an export function that imports its module when called."""

    def export(model: Model, name: str, **settings: Any) -> Any:
        return getattr(import_module(module), function)(model, name, **settings)

    return export


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Return the built-in exporters."""
    onnx = _import_later("treekit.export.onnx", "export_onnx")
    triton = _import_later("treekit.export.triton", "export_triton")
    c = _import_later("treekit.export.c", "export_c")
    rules = _import_later("treekit.rules", "export_rules")
    folder = "a model folder for NVIDIA Triton"
    own = [
        Exporter(
            "onnx",
            ".onnx",
            onnx,
            ONNX_SETTINGS,
            "one graph for onnxruntime and its WebAssembly build",
        ),
        Exporter("triton", TRITON_SUFFIX, triton, TRITON_SETTINGS, folder),
        Exporter(
            "c", ".c", c, _C_SETTINGS, "C99 source and header, also C++11 or newer, no libraries"
        ),
        Exporter("rules", ".rules.txt", rules, RULES_SETTINGS, "human-readable rules"),
    ]
    return own + load_languages(list_shipped_folders()[0])
