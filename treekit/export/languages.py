"""Targets that are folders: templates and a profile make an exporter, without any Python.

Every folder of `treekit.export.render.template_folders` that holds
``NAME/language.toml`` offers the target NAME; where several do, the first.  The
templates of such a target are looked for in all of them, in that order, so that
a folder with one template replaces that one and no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError
from treekit.export.language import Language
from treekit.export.literals import Code, identifier
from treekit.export.profile import PROFILE, Profile, read_profile
from treekit.export.render import render_from, template_folders
from treekit.export.values import ABILITIES, needs, template_values
from treekit.model.ensemble import Model

__all__ = [
    "TEMPLATES",
    "LanguageExport",
    "language_exporter",
    "languages",
    "require_abilities",
    "target_named",
]

TEMPLATES = Setting("templates", "", "a folder whose templates replace the shipped ones")
_FORM = Setting(
    "form",
    "auto",
    "nested if/else, or tables and a short loop; auto: if/else for small models",
    choices=("auto", "if_else", "table"),
)
_ACCEPTED = {
    "identifier": r"[A-Za-z_][A-Za-z0-9_]*",
    "dotted": r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
}


@dataclass(frozen=True)
class LanguageExport:
    """The function of a `treekit.Exporter` that is a folder of a language.

    Attributes
    ----------
    profile : Profile
    folder : Path
        Holds the folder of the language.
    """

    profile: Profile
    folder: Path

    def folders(self, templates: str = "") -> list[Path]:
        """Where its templates are looked for, in order."""
        found = template_folders(templates)
        return found if self.folder in found else [*found, self.folder]

    def __call__(
        self, model: Model, stem: str, *, templates: str = "", form: str = "auto", **given: Any
    ) -> dict[str, bytes]:
        """Write a model; see `treekit.Exporter`."""
        profile = self.profile
        require_abilities(model, profile.name, profile.abilities)
        if profile.file_name == "identifier":
            _require_identifier(stem, profile)
        values = template_values(
            *(model, stem, profile.literals, profile.forms, form), leaf_nodes=profile.leaf_nodes
        )
        for name, setting in profile.settings.items():
            values[name] = self._text(name, given.get(name, setting.default))
        folders = self.folders(templates)
        return {
            f"{stem}{ending}": render_from(folders, f"{profile.name}/{file}", **values)
            for ending, file in profile.files.items()
        }

    def _text(self, name: str, text: str) -> Code:
        """The value of a setting of the profile, which is a name in the language."""
        accepts, reserved = self.profile.settings[name].accepts, self.profile.literals.reserved
        if text and not re.fullmatch(_ACCEPTED[accepts], text, re.ASCII):
            raise ExportError(f"{name}={text!r} is no {accepts} name of {self.profile.name}")
        if taken := [word for word in text.split(".") if word in reserved]:
            raise ExportError(f"{name}={text!r}: {taken[0]!r} is a word of {self.profile.name}")
        return Code(text)


def require_abilities(model: Model, target: str, able: frozenset[str] | tuple[str, ...]) -> None:
    """Raise `ExportError` if a model needs an ability that is not among `able`."""
    for ability in needs(model):
        if ability not in able:
            raise ExportError(
                f"the target {target!r} cannot write {ABILITIES[ability]}, which this model "
                "has; export to another target"
            )


def _require_identifier(stem: str, profile: Profile) -> None:
    language: Language = profile.literals
    made = f"{language.name(stem, 'model')}"
    if stem != made:
        raise ExportError(
            f"{stem + profile.suffix!r}: in {profile.name} the name of the file is that of what "
            f"it holds; call it {made + profile.suffix!r}"
        )


def language_exporter(folder: str | Path) -> Exporter:
    """An exporter that is the folder of a language: templates and ``language.toml``.

    >>> language_exporter(Path(__file__).with_name("templates") / "zig")

    Raises
    ------
    ExportError
        If its profile is absent or faulty.
    """
    folder = Path(folder)
    profile = read_profile(folder)
    if unknown := sorted(set(profile.abilities) - set(ABILITIES)):
        raise ExportError(
            f"{str(folder / PROFILE)!r}: unknown ability {unknown[0]!r}; "
            f"known: {', '.join(ABILITIES)}"
        )
    own = tuple(
        Setting(name, setting.default, setting.help) for name, setting in profile.settings.items()
    )
    form = (_FORM,) * ("if_else" in profile.forms)
    settings = (*form, *own, TEMPLATES)
    export = LanguageExport(profile, folder.parent)
    return Exporter(profile.name, profile.suffix, export, settings, profile.summary)


def languages(folders: Sequence[Path] | None = None) -> list[Exporter]:
    """The exporters of all folders that hold languages; default: shipped and the user's."""
    found: dict[str, Exporter] = {}
    for folder in template_folders() if folders is None else folders:
        for path in sorted(folder.glob(f"*/{PROFILE}")):
            if path.parent.name not in found:
                found[path.parent.name] = language_exporter(path.parent)
    return list(found.values())


def target_named(target: str, settings: Mapping[str, Any]) -> Exporter:
    """The exporter of that name; one of the folder that the setting ``templates`` names first.

    Raises
    ------
    ExportError
        If the profile there is faulty.
    SettingError
        If no target has the name.
    """
    from treekit import registry

    templates = settings.get("templates", "")
    if isinstance(templates, str) and templates and identifier(target, "") == target:
        own = Path(templates) / target
        if (own / PROFILE).is_file():
            return language_exporter(own)
    return registry.exporter(target)
