"""What the coupling ν = r κ changes and what it cannot change: the circle with many r, and with κ left free.

On eq:kappanucoupling, Sec. 3. The likelihood sees (1+κ)/κ Ψ only. So r moves the border between aleatoric and
epistemic uncertainty, while the predictive distribution, which is what is fitted, can stay as it is.

Command: ``python -m experiments coupling``. Run time on two cores: about 5 s, with ``--full`` about 40 s.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.progress import running
from experiments.paper import circle_recipe
from experiments.paper.coupling.claims import claims as claims, report as report
from experiments.paper.coupling.figures import CAPTIONS as CAPTIONS, plot as plot

# A free κ is softplus(p₇ + shift): it starts at 0.7, or at 8, where κ = ν starts with r = 1.
SHIFTS = (0.0, 8.0)
MANY = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and networks", least=0)
    r: tuple[float, ...] = option((0.1, 1.0, 100.0), "couplings", full=MANY, least=1e-6)
    members: int = option(5, "networks for each coupling, and for each start of a free kappa", full=40)
    epochs: int = option(circle_recipe.EPOCHS, "epochs of three steps; with fewer ν stays where the start drives it")
    points: int = option(circle_recipe.POINTS, "points to train on, others for each member")
    fresh: int = option(2_000, "points to test on", full=10_000)


def run(config: Config) -> dict[str, Any]:
    """Train all couplings and the free κ as one program; arrays come as (settings, members, ...), free κ last."""
    data = circle_recipe.draw(config.seed, config.members, config.points, config.fresh, keys=config.members)
    ensemble = fit(config, data)
    running("coupling: predicting")
    t = circle_recipe.GRID[:, None].astype(data.fresh_t.dtype)
    niw = mder.predict(ensemble, np.concatenate([t, data.fresh_t]))
    nll, error = evidence(_rows(niw, slice(len(t), None)), data.fresh_xy)
    found = {
        "train": np.asarray(ensemble.history.train)[:, -1],
        "fresh": nll.mean(axis=1),
        "diverged": ensemble.diverged_at >= 0,
        **on_grid(_rows(niw, slice(len(t)))),
    }
    by_setting = {name: value.reshape(-1, config.members, *value.shape[1:]) for name, value in found.items()}
    start = np.logaddexp(0, SHIFTS).tolist()
    return {"r": list(config.r), "start": start, "identity_error": error, "rows": nll.size} | by_setting


def fit(config: Config, data: circle_recipe.Draw) -> mder.Ensemble:
    """Members of all settings; member i of each has the same data and starts from the same weights."""
    settings = {
        "r": np.array([*config.r, *np.ones(len(SHIFTS))], np.float32),
        "free": np.array([False] * len(config.r) + [True] * len(SHIFTS)),
        "shift": np.array([0.0] * len(config.r) + list(SHIFTS), np.float32),
    }
    count = len(settings["r"])
    networks = mder.PerMember({name: np.repeat(value, config.members) for name, value in settings.items()}, network)
    t, xy = (np.tile(rows, (count, 1, 1)) for rows in (data.t, data.xy))
    return circle_recipe.fit("coupling", np.tile(data.keys, (count, 1)), t, xy, config.epochs, network=networks)


def network(setting: dict[str, Array]) -> mder.Network:
    """1-32-32-7: that of Sec. 4, and a seventh output from which κ = softplus(p₇ + shift) if κ is free."""

    def link(raw: Array) -> mder.NIW:
        coupled = mder.niw_link(raw[..., :-1], n=2, r=setting["r"])
        free = jnp.maximum(jax.nn.softplus(raw[..., -1] + setting["shift"]), 1e-6)
        return mder.NIW(coupled.mu, coupled.L, jnp.where(setting["free"], free, coupled.kappa), coupled.nu)

    return mder.mlp(circle_recipe.WIDTHS, mder.num_outputs(2) + 1, link=link)


def recoupled(niw: mder.NIW, r: float) -> mder.NIW:
    """The NIW with κ = ν/r that has the same evidence for every y: L √((1 + 1/κ) / (1 + r/ν)) in the place of L."""
    factor = jnp.sqrt((1 + 1 / niw.kappa) / (1 + r / niw.nu))
    return mder.couple(niw.mu, factor[..., None, None] * niw.L, niw.nu, r)


def evidence(niw: mder.NIW, y: np.ndarray) -> tuple[np.ndarray, float]:
    """NLL per row in float64, and the largest difference from that of the same NIW with r = 1, in nats."""

    @jax.jit
    def both(niw: mder.NIW, y: Array) -> tuple[Array, Array]:
        return mder.log_evidence(niw, y), mder.log_evidence(recoupled(niw, 1.0), y)

    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), niw)
        own, again = (np.asarray(value) for value in both(wide, np.broadcast_to(y.astype(np.float64), wide.mu.shape)))
    return -own, float(np.abs(own - again).max())


def on_grid(niw: mder.NIW) -> dict[str, np.ndarray]:
    """ν, κ, error of μ along the radius, and standard deviations along it, where the noise is: arrays (members, T)."""
    radius = circle_recipe.true_mean()
    nu, kappa = np.asarray(niw.nu, np.float64), np.asarray(niw.kappa, np.float64)
    width = np.linalg.norm(np.einsum("mtji,tj->mti", np.asarray(niw.L, np.float64), radius), axis=-1)
    aleatoric = np.sqrt(nu / (nu - 3)) * width
    return {
        "nu": nu,
        "kappa": kappa,
        "aleatoric": aleatoric,
        "epistemic": aleatoric / np.sqrt(kappa),
        "total": aleatoric * np.sqrt(1 + 1 / kappa),
        "error": np.sum(np.asarray(niw.mu) * radius, axis=-1) - 1,
    }


def _rows(niw: mder.NIW, rows: slice) -> mder.NIW:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, rows], niw)
