"""The files of a new plugin, filled in from ``templates/plugin/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treekit._version import __version__
from treekit.contracts import CONTRACT_VERSION
from treekit.export.literals import Code
from treekit.export.render import render

if TYPE_CHECKING:
    from treekit.scaffold.names import PluginNames

__all__ = ["contents"]


def contents(names: PluginNames, kind: str) -> dict[str, bytes]:
    """Every file of the package, by its path with ``/`` below the package's folder.

    Parameters
    ----------
    names : PluginNames
        Checked: they are written into code as they are.
    kind : str
        A kind of component.
    """
    module, component = names.module, names.component
    # A target has templates of its own, which need a folder to be shipped in.
    shipped = f"{module}/__init__.py" if kind == "exporter" else f"{module}.py"
    template_of = {
        "pyproject.toml": "pyproject",
        "README.md": "readme",
        shipped: f"{kind}/module",
        f"tests/test_{component}.py": f"{kind}/test",
    }
    if kind == "exporter":
        template_of[f"{module}/templates/{component}/model.jinja"] = "exporter/model"
    values: dict[str, Any] = {
        "kind": Code(kind),
        "component": Code(component),
        "distribution": Code(names.distribution),
        "module": Code(module),
        "shipped": Code(shipped.partition("/")[0]),
        "file": Code(shipped),
        "test_file": Code(f"tests/test_{component}.py"),
        "contract": CONTRACT_VERSION,
        "treekit": Code(".".join(__version__.split(".")[:2])),
        "about": f"plugin/{kind}/about.jinja",
        "summary": f"plugin/{kind}/summary.jinja",
    }
    return {
        place: render(f"plugin/{template}.jinja", **values)
        for place, template in template_of.items()
    }
