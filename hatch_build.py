"""Hooks of the build: the library of kernels, and the readme and addresses of the distribution.

``TREEKIT_KERNELS`` says which kernels are compiled: ``usual`` (by default), ``all``, or ``none``.
A wheel with a library suits every Python of one platform; others compile kernels on first use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class AddressHook(MetadataHookInterface):
    """Set the readme, and in a workflow of GitHub the addresses of the repository it runs in.

    On the package index a link to a file of the repository needs its address.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add ``readme`` and ``urls``."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        urls = {}
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
            files = f"{home}/%s/{os.environ.get('GITHUB_REF_NAME', 'HEAD')}/"
            text = re.sub(r"(?<=\]\()(?!https?:|#)", files % "blob", text)
            text = re.sub(r'(?<=src=")(?!https?:)', files % "raw", text)
            urls = {"Homepage": home, "Changelog": files % "blob" + "CHANGELOG.md"}
            urls["Issues"] = f"{home}/issues"
            owner, _, name = repository.partition("/")
            urls["Documentation"] = f"https://{owner}.github.io/{name}/"
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Build the library of kernels into the wheel, or into the checkout for ``pip install -e``."""

    @property
    def source(self) -> Path:
        """The folder of the repository; `tools/runtime` has a distribution of its own."""
        root = Path(self.root)
        return next(path for path in (root, *root.parents) if (path / "hatch_build.py").exists())

    def dependencies(self) -> list[str]:
        """Return what the build imports in an isolated environment."""
        if _choose_kernels() == "none":
            return []
        project = tomllib.loads(Path(self.source, "pyproject.toml").read_text(encoding="utf-8"))
        needed = project["project"]["dependencies"]
        return [one for one in needed if re.split(r"[^\w-]", one)[0] in _IMPORTED_BY_BUILD]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library before the files of the wheel are collected."""
        if self.source != Path(self.root):
            self._include_package(build_data)
        if _choose_kernels() == "none":
            return
        root = self.source
        folder = root / "treekit/kernels/machine_code"
        if version != "editable":
            folder = self.folder = Path(tempfile.mkdtemp(prefix="treekit-"))
        command = [sys.executable, "-m", "treekit.kernel_library.build", "--into", str(folder)]
        command += ["--cache", *(["--usual"] if _choose_kernels() == "usual" else [])]
        # What pip installs for the build is on the path of this process alone.
        path = os.pathsep.join([str(root), *filter(None, sys.path)])
        done = subprocess.run(  # noqa: S603 - this interpreter
            command, cwd=root, env=os.environ | {"PYTHONPATH": path}, check=False
        )
        if done.returncode:
            if _choose_kernels() == "all":
                raise RuntimeError("the library of kernels was not built")
            self.app.display_warning("no library of kernels: they compile on first use")
        elif version != "editable":
            build_data["force_include"][str(folder)] = "treekit/kernels/machine_code"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_get_platform_tag()}"

    def _include_package(self, build_data: dict[str, Any]) -> None:
        """Add the package and the templates, which are outside `tools/runtime`, to its wheel."""
        skipped = {".DS_Store", "__pycache__", "machine_code"}
        for top, target in (("treekit", "treekit"), ("templates", "treekit/templates")):
            folder = self.source / top
            for path in folder.rglob("*"):
                inner = path.relative_to(folder)
                if path.is_file() and not skipped.intersection(inner.parts):
                    build_data["force_include"][str(path)] = f"{target}/{inner.as_posix()}"

    def finalize(self, *_: Any) -> None:
        """Delete the library outside the checkout."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


_IMPORTED_BY_BUILD = frozenset(
    {"jinja2", "lazy-loader", "msgspec", "numba", "numpy", "pluggy", "rich"}
)


def get_build_hook() -> type[KernelHook]:
    """Return the hook that hatchling runs."""
    return KernelHook


def _choose_kernels() -> str:
    choice = os.environ.get("TREEKIT_KERNELS", "usual")
    if choice not in ("none", "usual", "all"):
        raise ValueError(f"TREEKIT_KERNELS is {choice!r}; use none, usual or all")
    return choice


def _get_platform_tag() -> str:
    """Return the tag of this platform; the library suits any release of the C library."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return platform.replace("linux_", "manylinux_2_17_") if libc else platform
