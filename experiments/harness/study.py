"""The interface of a study, and the list of studies."""

import importlib
import pathlib
from typing import Any, NamedTuple, Protocol, cast

from experiments.harness.claims import Claim


class Study(Protocol):
    """A study runs once; its report, claims and figures come from the saved results."""

    Config: type
    CAPTIONS: dict[str, str]

    def run(self, config: Any, *folder: pathlib.Path) -> dict[str, Any]:
        """Compute what is saved: dicts, lists, numbers, text, arrays. Only a resumable study gets the folder."""

    def report(self, results: dict[str, Any]) -> str:
        """The text to print."""

    def claims(self, results: dict[str, Any]) -> list[Claim]:
        """Rows of the ledger."""

    def plot(self, results: dict[str, Any]) -> dict[str, Any]:
        """Figures by name; each has a caption."""


class Entry(NamedTuple):
    """The module of a study, what it shows, and how it runs."""

    module: str
    what: str
    in_paper: bool  # whether the command without a name runs it
    resumable: bool = False  # whether it keeps what is done so far in the folder of the results, and resumes from there


PAPER = {
    "circle": "100 networks on the noisy circle: predictions, the gate ν, covariance and correlation",
    "sample_size": "from 50 to 30,000 points: when the gate opens, and when the fit over-fits",
    "coupling": "what the coupling r changes, and what it cannot; κ and ν both free",
    "degeneration": "the likelihood cannot distinguish κ from β, and what Amini's regulariser makes of it",
    "student_fits": "t densities, a t5 fitted to a t2, and how far a t13 is from a normal",
    "nu_bias": "bias of fitted ν and σ, against the sample size",
    "gaussian_fit": "a Gaussian fit and an over-fit, which has the smaller loss",
    "uncertainty_types": "aleatoric and epistemic uncertainty where data are noisy, misfitted or missing",
    "cubic": "the univariate experiment of Amini et al., six methods side by side",
    "evidence": "the closed forms against brute-force integration, and their error in float32",
}
BENCHMARK = "real tables: this library against other methods; --full runs for 75 minutes, part E for hours"
SPEED = "the evidence, training against PyTorch, and how training grows, as ratios"
STUDIES = {name: Entry(f"experiments.paper.{name}", what, in_paper=True) for name, what in PAPER.items()} | {
    "benchmark": Entry("experiments.benchmark", BENCHMARK, in_paper=False, resumable=True),
    "speed": Entry("experiments.speed", SPEED, in_paper=False),
}


def find(name: str) -> Study:
    """The study of this name."""
    return cast(Study, importlib.import_module(STUDIES[name].module))
