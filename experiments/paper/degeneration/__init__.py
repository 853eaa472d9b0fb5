"""The likelihood cannot distinguish κ from β (fig:degeneration), and what Amini's regulariser makes of that.

Sec. 2.1, 2.2, 3 and App. D of the paper. Command: ``python -m experiments degeneration``. Run time: about 6 s on two
cores, half of it compilation.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.paper import brute_force
from experiments.paper.degeneration import training
from experiments.paper.degeneration.claims import claims as claims, report as report
from experiments.paper.degeneration.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.degeneration.manifold import DF, WIDTH, examine, measures, points, prior
from experiments.paper.degeneration.statistics import DEFINITIONS, constants


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and networks", least=0)
    grid: int = option(41, "values of kappa along the manifold, from 1e-4 to 1e4", full=161, least=5)
    hessians: int = option(9, "of these, how many with a Hessian", full=41)
    examples: int = option(200, "draws of y for the loss along the manifold", full=2000, least=2)
    lambdas: tuple[float, ...] = option((0.01, 0.1, 1.0), "strengths of the regulariser, besides 0", least=1e-9)
    members: int = option(8, "networks for each strength and definition", full=30, least=2)
    epochs: int = option(600, "epochs of training", full=8000, least=4)
    points: int = option(100, "training points", full=200, least=2)
    records: int = option(20, "epochs at which kappa is recorded", full=80, least=4)


def run(config: Config) -> dict[str, Any]:
    """Everything that is constant along the manifold, the loss that is not, and networks trained with it."""
    kappa = np.logspace(-4, 4, config.grid)
    rng = np.random.default_rng(config.seed)
    y = np.sqrt(2 * WIDTH / DF) * rng.standard_t(DF, config.examples)
    trained = training.run(config.seed, config.lambdas, config.members, config.epochs, config.points, config.records)
    return {
        "kappa": kappa,
        "lambdas": sorted(set(config.lambdas)),
        "surface": surface(),
        "targets": [examine(n, kappa, config.hessians) for n in (1, 2, 3)],
        "off_manifold": off_manifold(),
        "loss": loss_along(kappa, y),
        "float32": small_kappa(),
        "virtual": brute_force.posterior(brute_force.make_cases(rng, 1, 50), rng),
        "training": trained,
    }


def surface() -> dict[str, np.ndarray]:
    """β(1+κ)/κ over the (β, κ) plane, fig:degeneration."""
    beta, kappa = np.linspace(0.05, 3, 60), np.linspace(0.25, 3, 56)
    return {"beta": beta, "kappa": kappa, "value": beta[None, :] * ((1 + kappa) / kappa)[:, None]}


def off_manifold(change: float = 0.1) -> dict[str, float]:
    """How much entropy, peak height and divergences change if β is 10 % larger at the same κ, n = 1."""
    niw = prior(points(1, np.ones(1)), 1)
    larger = niw._replace(Psi=(1 + change) * niw.Psi)
    before, after = (constants(measures(found)) for found in (niw, larger))
    return {name: float(abs(after[name] - before[name])[0]) for name in before}


@jax.jit
def _amini(kappa: Any, beta: Any, y: Any) -> dict[str, Any]:
    """Mean NLL and regulariser over y, and the uncertainties, for each κ and β."""
    shape = (kappa.shape[0], y.shape[0])
    kappa, beta, y = (jnp.broadcast_to(value, shape) for value in (kappa[:, None], beta[:, None], y[None, :]))
    nig = mder.NIG(jnp.zeros_like(y), kappa, jnp.full_like(y, DF / 2), beta)
    found = {"nll": -mder.nig.log_evidence(nig, y)}
    found |= {name: mder.evidence_regulariser(nig, y, name) for name in DEFINITIONS}
    found |= {"aleatoric": mder.nig.aleatoric(nig), "epistemic": mder.nig.epistemic(nig)}
    return jax.tree.map(lambda values: jnp.mean(values, axis=1), found)


def loss_along(kappa: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The parts of Amini's loss and the two uncertainties along the manifold, (K,) each, by the library in float64."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _amini(kappa, WIDTH * kappa / (1 + kappa), y))


@jax.jit
def _nll_and_slopes(log_kappa: Any, log_beta: Any) -> Any:
    """−ln p(y = 1) and its derivatives by ln κ and ln β."""

    def nll(log_kappa: Any, log_beta: Any) -> Any:
        y = jnp.ones_like(log_kappa)
        return -mder.nig.log_evidence(mder.NIG(0 * y, jnp.exp(log_kappa), DF / 2 * y, jnp.exp(log_beta)), y)

    return jax.vmap(jax.value_and_grad(nll, (0, 1)))(log_kappa, log_beta)


def small_kappa(tolerance: float = 1e-3) -> dict[str, float]:
    """The least κ on the manifold down to which float32 has the NLL and its slopes right, and the error to there."""
    kappa = np.logspace(0, -30, 61)
    logs = np.log(kappa), np.log(WIDTH * kappa / (1 + kappa))
    z = 1 / (2 * WIDTH)
    nll = -stats.t.logpdf(1, DF, 0, np.sqrt(2 * WIDTH / DF))
    by_beta = 0.5 - (DF + 1) / 2 * z / (1 + z)
    exact = [np.full_like(kappa, nll), -by_beta / (1 + kappa), np.full_like(kappa, by_beta)]
    found = jax.tree.leaves(_nll_and_slopes(*(values.astype(np.float32) for values in logs)))
    errors = np.max([np.abs(np.asarray(a, np.float64) - b) for a, b in zip(found, exact, strict=True)], axis=0)
    good = np.cumprod(errors < tolerance).astype(bool)  # NaN is not below
    return {"least_kappa": float(np.min(kappa[good], initial=np.inf)), "error": float(np.max(errors[good], initial=0))}
