"""Exporters defined by a folder of templates and a profile, without Python code.

A template folder (shipped, listed in ``TREEKIT_TEMPLATES`` or given) that contains
``NAME/language.toml`` defines the target NAME; the first such folder wins.  The
templates of the target are looked up in all folders, in that order, so that
a folder with one template replaces only that one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from treekit import registry
from treekit.contracts import Exporter, Setting
from treekit.discovery import KINDS, check_record
from treekit.errors import ExportError, PluginError, SettingError
from treekit.export.literals import (
    TEMPLATES_VARIABLE,
    Code,
    Language,
    identifier,
    list_shipped_folders,
    list_template_folders,
    list_variable_folders,
    render_from,
    require_folder,
)
from treekit.export.template_values import ABILITIES, needs, template_values
from treekit.model.model import Model

# ---------------------------------------------------------------- languages

TEMPLATES_SETTING = Setting("templates", "", "folder whose templates replace the shipped ones")
_FORM_SETTING = Setting(
    "form",
    "auto",
    "nested if/else, or tables and a short loop; auto: if/else for small models",
    choices=("auto", "if_else", "table"),
)
_NAME_PATTERNS = {
    "identifier": r"[A-Za-z_][A-Za-z0-9_]*",
    "dotted": r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
}


FaultCallback = Callable[[str], None]
"""Callback that reports a fault of a folder, given as a sentence."""


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
        self, model: Model, stem: str, *, templates: str = "", form: str = "auto", **given: Any
    ) -> dict[str, bytes]:
        """Export a model; see `treekit.Exporter`."""
        profile = self.profile
        require_abilities(model, profile.name, profile.abilities)
        if profile.file_name == "identifier":
            _require_identifier(stem, profile)
        values = template_values(
            *(model, stem, profile.literals, profile.forms, form), leaf_nodes=profile.leaf_nodes
        )
        for name, setting in profile.settings.items():
            values[name] = self._check_name(name, given.get(name, setting.default))
        folders = self.list_folders(templates)
        return {
            f"{stem}{ending}": render_from(folders, f"{profile.name}/{file}", **values)
            for ending, file in profile.files.items()
        }

    def _check_name(self, name: str, text: str) -> Code:
        """Check the value of a profile setting, which is a name in the language."""
        accepts, reserved = self.profile.settings[name].accepts, self.profile.literals.reserved
        if text and not re.fullmatch(_NAME_PATTERNS[accepts], text, re.ASCII):
            raise ExportError(f"{name}={text!r} is not a valid {accepts} of {self.profile.name}")
        if taken := [word for word in text.split(".") if word in reserved]:
            raise ExportError(
                f"{name}={text!r}: {taken[0]!r} is a reserved word of {self.profile.name}"
            )
        return Code(text)


def require_abilities(model: Model, target: str, able: frozenset[str] | tuple[str, ...]) -> None:
    """Raise `ExportError` if a model needs an ability that is not among `able`."""
    for ability in needs(model):
        if ability not in able:
            raise ExportError(
                f"the target {target!r} does not support {ABILITIES[ability]}, which this model "
                "needs: export to another target"
            )


def _require_identifier(stem: str, profile: Profile) -> None:
    language: Language = profile.literals
    made = f"{language.name(stem, 'model')}"
    if stem != made:
        raise ExportError(
            f"{stem + profile.suffix!r}: in {profile.name} the file name must be an identifier: "
            f"rename it to {made + profile.suffix!r}"
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
    if unknown := sorted(set(profile.abilities) - set(ABILITIES)):
        raise ExportError(
            f"{str(folder / PROFILE_FILE)!r}: unknown ability {unknown[0]!r}; "
            f"known: {', '.join(ABILITIES)}"
        )
    own = tuple(
        Setting(name, setting.default, setting.help) for name, setting in profile.settings.items()
    )
    form = (_FORM_SETTING,) * ("if_else" in profile.forms)
    settings = (*form, *own, TEMPLATES_SETTING)
    export = LanguageExport(profile, folder.parent)
    return Exporter(profile.name, profile.suffix, export, settings, profile.summary)


def load_languages(folder: str | Path, report: FaultCallback | None = None) -> list[Exporter]:
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
            found.append(_check_exporter(language_exporter(path.parent), path))
        except ExportError as error:
            if report is None:
                raise
            report(str(error))
    return found


def load_known_languages(taken: Collection[str], report: FaultCallback) -> list[Exporter]:
    """Make the exporters of the languages in ``TREEKIT_TEMPLATES`` and of the shipped ones.

    Parameters
    ----------
    taken : collection of str
        Names of other exporters, which no language may have.
    report : callable
        Called with a message for each fault in the user's folders.  A shipped language with
        the name of an invalid one is left out, too: the user asked for another.
    """
    found: dict[str, Exporter] = {}
    faulty: set[str] = set()

    def report_fault(what: str) -> None:
        report(f"{TEMPLATES_VARIABLE}: {what}")

    for folder in list_variable_folders():
        try:
            require_folder(folder, TEMPLATES_VARIABLE)
        except ExportError as error:
            report(str(error))
            continue
        offered = {exporter.name: exporter for exporter in load_languages(folder, report_fault)}
        for name in sorted(taken & offered.keys()):
            path = str(folder / name / PROFILE_FILE)
            report_fault(f"{path!r}: {name!r} is the name of a built-in target; rename the folder")
            del offered[name]
        held = {path.parent.name for path in folder.glob(f"*/{PROFILE_FILE}")}
        faulty |= held - offered.keys() - found.keys()
        found |= {n: e for n, e in offered.items() if n not in found.keys() | faulty}
    for folder in list_shipped_folders():
        for exporter in load_languages(folder):
            if exporter.name not in found.keys() | faulty:
                found[exporter.name] = exporter
    return list(found.values())


def _check_exporter(exporter: Exporter, path: Path) -> Exporter:
    try:
        check_record(exporter, KINDS["exporter"])
    except PluginError as error:
        raise ExportError(f"{str(path)!r}: {error}") from error
    return exporter


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
        return registry.exporter(target)
    folder = find_languages_folder(templates, target)
    if identifier(target, "") == target and (folder / target / PROFILE_FILE).is_file():
        return language_exporter(folder / target)
    try:
        return registry.exporter(target)
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
    accepts: str = "identifier"


@dataclass(frozen=True)
class Verify:
    """Commands that run exported files of the language, each a list of words without a shell.

    In commands ``{python}`` is the running Python; in `artifact` ``{number}`` counts the
    artifacts of a program, and ``{name}`` is the name of the file.

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
    """Content of ``language.toml``.

    Attributes
    ----------
    name, suffix, summary : str
        Properties of the target; the name is that of the folder.
    files : mapping
        Template of each file by its suffix, the main file first.
    abilities : tuple of str
        See `treekit.export.template_values.ABILITIES`.
    forms : tuple of str
        "table", and "if_else" if the templates support it.
    leaf_nodes : bool
        See `treekit.export.template_values.template_values`.
    file_name : {"any", "identifier"}
        Whether the file name must be an identifier of the language.
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
    profile: Profile = _build_record(Profile, {"name": folder.name} | table, path, "")
    _check_choices(profile, path)
    return profile


def _check_choices(profile: Profile, path: Path) -> None:
    texts = {profile.verify.text} if profile.verify else set()
    accepts = {setting.accepts for setting in profile.settings.values()}
    for where, values, known in (
        ("forms", set(profile.forms), {"table", "if_else"}),
        ("file_name", {profile.file_name}, {"any", "identifier"}),
        ("verify.text", texts, {"utf-8", "utf-16-le"}),
        ("settings.accepts", accepts, {"identifier", "dotted"}),
    ):
        if other := sorted(values - known):
            raise _make_error(
                path, where, f"{other[0]!r}; expected one of {', '.join(sorted(known))}"
            )
    own = {"form", "templates", "model", "target", "path"}
    if taken := sorted(own & set(profile.settings)):
        raise _make_error(path, f"settings.{taken[0]}", "a built-in setting; rename it")
    if "table" not in profile.forms or not profile.files:
        raise _make_error(path, "form 'table' or files", "missing; add both")
    if profile.suffix != next(iter(profile.files)):
        raise _make_error(path, "suffix", f"{profile.suffix!r}; name that of the first file")


def _build_record(kind: type[Any], table: Any, path: Path, where: str) -> Any:
    """Build a record of the dataclass `kind` from a TOML table; check the types of its fields."""
    if not isinstance(table, dict):
        raise _make_error(path, where, f"{table!r}; expected a table")
    hints = _get_field_types(cast(Any, kind))
    if unknown := sorted(set(table) - set(hints)):
        known = ", ".join(hints)
        raise _make_error(path, where + unknown[0], f"unknown; known here: {known}")
    for each in fields(kind):
        required = each.default is MISSING and each.default_factory is MISSING
        if required and each.name not in table:
            raise _make_error(path, where + each.name, "missing")
    return kind(
        **{n: _convert_value(hints[n], value, path, where + n) for n, value in table.items()}
    )


@cache
def _get_field_types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert_value(hint: Any, value: Any, path: Path, where: str) -> Any:
    """Convert a TOML value to the type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _build_record(hint, value, path, f"{where}.")
    if type(None) in arguments:
        return _convert_value(arguments[0], value, path, where)
    if origin in (tuple, frozenset) and isinstance(value, list):
        return origin(_convert_value(arguments[0], one, path, where) for one in value)
    if origin is Mapping and isinstance(value, dict):
        return {
            n: _convert_value(arguments[1], one, path, f"{where}.{n}") for n, one in value.items()
        }
    if origin not in (None, tuple, frozenset, Mapping) and value in arguments:  # Literal
        return value
    if isinstance(hint, type) and type(value) is hint:
        return value
    wanted = f"one of {', '.join(map(repr, arguments))}" if arguments else hint.__name__
    raise _make_error(path, where, f"{value!r}; expected {wanted}")


def _make_error(path: Path, where: str, what: str) -> ExportError:
    return ExportError(f"{str(path)!r}: {where.rstrip('.')} is {what}")
