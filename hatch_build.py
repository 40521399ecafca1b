"""Hooks of the build: the library of kernels, and the readme and addresses of the distribution.

Every build makes the library of kernels (``TREEKIT_KERNELS``, see `KernelHook`).

With ``TREEKIT_PREBUILD=1``, the usual kernels are compiled into the wheel instead, for numba;
``TREEKIT_PREBUILD=demo,serving`` compiles some of the kinds that ``treekit warm-up --help`` lists.
The wheel then suits one platform and one minor release of Python; its machine code is used with
the release of numba that built it, and any other release compiles on first use.
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
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls


class MachineCodeHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compile the kernels in a copy of the package, and add the machine code to the wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs in an isolated build: all that treekit needs."""
        if not _is_wanted():
            return []
        project = tomllib.loads(Path(self.root, "pyproject.toml").read_text(encoding="utf-8"))
        return list(project["project"]["dependencies"])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels before the files of the wheel are collected."""
        if version == "editable" or not _is_wanted():
            return
        self.folder = Path(tempfile.mkdtemp(prefix="treekit-"))
        try:
            code = _compile_kernels(Path(self.root), self.folder)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        if not code.is_dir():
            self.app.display_warning("no machine code for this kind of machine: a plain wheel")
            return
        build_data["force_include"][str(code)] = "treekit/kernels/machine_code"
        build_data["pure_python"] = False
        build_data["tag"] = f"{_get_python_tag()}-{_get_platform_tag()}"

    def finalize(self, *_: Any) -> None:
        """Delete the copy."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


class KernelHook(MachineCodeHook):
    """Build the library of kernels into the wheel, or into the checkout if it is editable.

    ``TREEKIT_KERNELS`` says which variants: ``usual`` (by default), ``all``, or ``none``.  Without
    a library kernels compile on first use: only ``all`` must not fail.
    """

    def dependencies(self) -> list[str]:
        """Return what the build imports in an isolated environment."""
        if _choose_kernels() == "none":
            return super().dependencies()
        project = tomllib.loads(Path(self.root, "pyproject.toml").read_text(encoding="utf-8"))
        needed = project["project"]["dependencies"]
        return [one for one in needed if re.split(r"[^\w-]", one)[0] in _IMPORTED_BY_BUILD]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library before the files of the wheel are collected."""
        if _choose_kernels() == "none" or _is_wanted():
            super().initialize(version, build_data)
            return
        root = Path(self.root)
        self.folder = root / "treekit/kernels/machine_code"
        if version != "editable":
            self.folder = Path(tempfile.mkdtemp(prefix="treekit-"))
        command = [sys.executable, "-m", "treekit.compiling.build", "--into", str(self.folder)]
        command += ["--usual"] if _choose_kernels() == "usual" else []
        done = subprocess.run(  # noqa: S603 - this interpreter
            command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, check=False
        )
        if done.returncode:
            if _choose_kernels() == "all":
                raise RuntimeError("the library of kernels was not built")
            self.app.display_warning("no library of kernels: they compile on first use")
            return
        if version != "editable":
            build_data["force_include"][str(self.folder)] = "treekit/kernels/machine_code"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_get_platform_tag()}"

    def finalize(self, version: str, *_: Any) -> None:
        """Delete the library outside the checkout."""
        if version != "editable":
            super().finalize()


_IMPORTED_BY_BUILD = frozenset({"lazy-loader", "msgspec", "numba", "numpy", "pluggy", "rich"})


def get_build_hook() -> type[KernelHook]:
    """Return the hook that hatchling runs."""
    return KernelHook


def _choose_kernels() -> str:
    choice = os.environ.get("TREEKIT_KERNELS", "usual")
    if choice not in ("none", "usual", "all"):
        raise ValueError(f"TREEKIT_KERNELS is {choice!r}; use none, usual or all")
    return choice


def _compile_kernels(root: Path, folder: Path) -> Path:
    """Compile in a copy of the package, so that no path of the checkout is in the code."""
    for name in ("treekit", "templates"):
        skipped = shutil.ignore_patterns("__pycache__", "machine_code")
        shutil.copytree(root / name, folder / name, ignore=skipped)
    code = folder / "machine_code"
    kinds = [kind for kind in os.environ[_SETTING].split(",") if kind != "1"]
    command = [sys.executable, "-m", "treekit.warm_up", "--record", str(code), *kinds]
    settings = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    inherited = {name: value for name, value in os.environ.items() if "NUMBA" not in name}
    subprocess.run(command, check=True, cwd=folder, env=inherited | settings)  # noqa: S603
    return code


_SETTING = "TREEKIT_PREBUILD"


def _is_wanted() -> bool:
    return os.environ.get(_SETTING, "0") not in ("", "0")


def _get_python_tag() -> str:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{tag}-{tag}{getattr(sys, 'abiflags', '')}"


def _get_platform_tag() -> str:
    """Return the tag of this platform.

    The machine code calls functions of numba and libm only, so that it needs no later C library
    than numba's own wheels do.
    """
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return platform.replace("linux_", "manylinux_2_17_") if libc else platform
