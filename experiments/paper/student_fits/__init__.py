"""How little of ν the core of a Student-t shows: the t at several ν, a t_5 fitted to a t_2, a t_13 against a normal.

Figures students and dfit of Sec. "Challenging extraction of shape parameters".
Command: ``python -m experiments student_fits``. Run time: about 2 s on two cores.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.harness.command_options import option
from experiments.paper.student_fits import integrals
from experiments.paper.student_fits.claims import claims as claims, report as report
from experiments.paper.student_fits.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.student_fits.statistics import SHOWN


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of the simulated tests", least=0)
    core: float = option(3.0, "half width of the interval on which a t_5 is fitted to a t_2", least=1)
    degrees: float = option(13.0, "degrees of freedom said to be almost normal", least=6)
    trials: int = option(2000, "simulated tests of a t against a normal", full=8000, least=100)


def run(config: Config) -> dict[str, Any]:
    """All numbers; only the size of the best test's sample is simulated."""
    m = config.degrees
    # (degrees, targets, σ of the normal); with n = 2 the evidence has ν − n + 1 degrees of freedom: m − 1 at ν = m
    cases = [(m, 1, 1.0), (m, 1, integrals.matched_scale(m)), (m - 1, 2, integrals.matched_scale(m - 1))]
    rng = np.random.default_rng(config.seed)
    return {
        "core": config.core,
        "degrees": m,
        "fits": {name: integrals.smallest(loss) for name, loss in integrals.fit_losses(config.core).items()},
        "tails": [integrals.tails(nu, config.core) for nu in SHOWN],
        "normal": [integrals.from_normal(*case) for case in cases],
        "best_test": [integrals.half_power(rng, *case, config.trials, most=500) for case in cases],
        "sweep": [integrals.from_normal(m, 1, integrals.matched_scale(m)) for m in np.arange(3.0, 31.0).tolist()],
        "correlation": [correlations(nu, config.core) for nu in (2.0, 5.0, m)],
    }


def correlations(nu: float, core: float) -> dict[str, Any]:
    """Correlation of the estimates of ν and σ and the error of ν, with the whole line and with its core in view."""
    whole, widths = integrals.information(nu), np.linspace(1.0, 10.0, 37)
    error = integrals.error_of_nu(whole)
    found: dict[str, Any] = {"core": {}, "error_ratio": {}, "by_width": {}, "errors": {}}
    for way, counted in (("cut", False), ("counted", True)):
        at_core, *by_width = (integrals.information(nu, c, counted) for c in (core, *widths))
        found["core"][way] = integrals.correlation(at_core)
        found["error_ratio"][way] = integrals.error_of_nu(at_core) / error
        found["by_width"][way] = np.array([integrals.correlation(information) for information in by_width])
        found["errors"][way] = np.array([integrals.error_of_nu(information) for information in by_width]) / error
    return {"nu": nu, "whole": integrals.correlation(whole), "widths": widths, **found}
