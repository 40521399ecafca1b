"""The outcome of a verification; `treekit.verify.wording` says it to people."""

from __future__ import annotations

from dataclasses import dataclass

from treekit.verify.coverage import Coverage

__all__ = ["ArtifactResult", "Difference", "Report", "Untried"]


@dataclass(frozen=True)
class Difference:
    """The first row for which an artifact and its model differ.

    Attributes
    ----------
    how : str
        The way the artifact was called.
    row : dict of str to (float, str or None)
        Cells by column name; None = missing.
    expected, given : str
        The two answers, in words.
    """

    how: str
    row: dict[str, float | str | None]
    expected: str
    given: str


@dataclass(frozen=True)
class ArtifactResult:
    """What an artifact's run on one runtime showed.

    Attributes
    ----------
    path, kind : str
    sha256 : dict of str to str
        Digest of each of its files by name.
    rows, differing : int
        Rows compared; rows in which any bit differs, in any way of calling.
    first : Difference, optional
    error : str
        Why it could not be run; empty if it could.
    note : str
        What was left out to keep within the bounds of rows and time; empty if nothing.
    runtime : str
        What ran it; empty if nothing could.
    structure : str
        What comparing its trees with the model's showed, on every path and without
        running it: it begins with "proved" if all agree; empty if verify does not
        read trees from such files.
    """

    path: str
    kind: str
    sha256: dict[str, str]
    rows: int = 0
    differing: int = 0
    first: Difference | None = None
    error: str = ""
    note: str = ""
    runtime: str = ""
    structure: str = ""

    @property
    def proved(self) -> bool:
        """Whether every path of its trees is the model's, so that rows only confirm."""
        return self.structure.startswith("proved")

    @property
    def equal(self) -> bool:
        """Whether it ran and no bit differed."""
        return not self.error and self.differing == 0


@dataclass(frozen=True)
class Untried:
    """A runtime of an artifact's kind that was not tried, and why."""

    path: str
    runtime: str
    why: str


@dataclass(frozen=True)
class Report:
    """Artifacts, coverage, and what it was measured with; ``print`` it.

    Attributes
    ----------
    artifacts : tuple of ArtifactResult
        One for each artifact and runtime.
    coverage : Coverage
    model_sha256 : str
        Digest of all that decides the model's answers.
    probes : dict
        Counts and settings of the rows.
    versions : dict of str to str
    untried : tuple of Untried
    lowering : str
        What comparing the trees as exporters lower them with the model's showed.
    """

    artifacts: tuple[ArtifactResult, ...]
    coverage: Coverage
    model_sha256: str
    probes: dict[str, int]
    versions: dict[str, str]
    untried: tuple[Untried, ...] = ()
    lowering: str = ""

    @property
    def equal(self) -> bool:
        """Whether every artifact gave the model's answer, bit for bit, to every row."""
        return all(artifact.equal for artifact in self.artifacts)

    @property
    def exit_code(self) -> int:
        """0 if all are equal, else 1."""
        return 0 if self.equal else 1

    def __str__(self) -> str:
        from treekit.verify.wording import lines

        return "\n".join(lines(self))
