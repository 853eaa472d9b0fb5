"""Networks trained with Amini's loss for several λ and both definitions of the total evidence Φ, all in one program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

import mder_jax as mder
from experiments.harness.training import train
from experiments.paper.degeneration.statistics import DEFINITIONS

RATE = 5e-3
WIDTHS = (16, 16)
STARTS = (0.1, 10.0)  # κ of the first and the last member before training


def settings(lambdas: tuple[float, ...]) -> list[dict[str, Any]]:
    """λ and Φ of each group of members; without regulariser (the first group) there is no Φ to choose."""
    both = [(lam, phi) for phi in DEFINITIONS for lam in sorted(set(lambdas) - {0.0})]
    return [{"lambda": lam, "definition": phi} for lam, phi in [(0.0, "none"), *both]]


def run(seed: int, lambdas: tuple[float, ...], members: int, epochs: int, points: int, records: int) -> dict[str, Any]:
    """κ of every network while it trains, (groups, members, records), and how the training ended."""
    groups = settings(lambdas)
    X, Y = _data(seed, points)
    shifts = np.zeros((len(groups), members, 4), np.float32)
    shifts[..., 1] = np.log(np.expm1(np.geomspace(*STARTS, members)))
    lams = np.repeat(np.array([group["lambda"] for group in groups], np.float32), members)
    amini = np.repeat([group["definition"] == "amini2020" for group in groups], members)
    network = mder.PerMember(shifts.reshape(-1, 4), _network)
    snapshots: list[tuple[int, Any]] = []
    ensemble = train(
        "networks with Amini's loss",
        jnp.tile(jax.random.split(jax.random.key(seed), members), len(groups)),  # the same starts in each group
        network,
        mder.PerMember({"lam": lams, "amini": amini}, lambda own: _loss(**own)),
        X,
        Y,
        optimizer=optax.adam(RATE),
        epochs=epochs,
        callback=lambda progress: snapshots.append((progress.epoch, progress.params)),
        callback_every=max(1, epochs // records),
    )
    outputs = _outputs(network, [params for _, params in snapshots], X)
    shape = (len(groups), members)
    return {
        "groups": groups,
        "epoch": np.array([epoch for epoch, _ in snapshots]),
        "start": np.geomspace(*STARTS, members),
        "kappa": _by_group(np.exp(np.median(np.log(outputs.kappa), axis=-1)), shape),
        "alpha": _by_group(np.median(outputs.alpha, axis=-1), shape)[..., -1],
        "nll": _by_group(_nll(outputs, Y), shape)[..., -1],
        "diverged": int(np.sum(ensemble.diverged_at >= 0)),
    }


def _by_group(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """(records, all members) -> (groups, members, records)."""
    return np.moveaxis(values.reshape(len(values), *shape), 0, -1)


def _data(seed: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Amini's cubic, y = x³ + N(0, 3²) for x in [−4, 4], with x and y standardised."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, points)
    y = x**3 + 3 * rng.normal(size=points)
    return stats.zscore(x).astype(np.float32)[:, None], stats.zscore(y).astype(np.float32)


def _network(shift: Any) -> mder.Network:
    """1-16-16-4 with tanh, whose raw outputs are shifted."""
    return mder.mlp(WIDTHS, 4, activation="tanh", link=lambda raw: mder.nig_link(raw + shift))


def _loss(lam: Any, amini: Any) -> Any:
    """Amini's loss with λ and one of the two Φ."""

    def loss(nig: mder.NIG, y: Any) -> Any:
        first, second = (mder.evidence_regulariser(nig, y, definition) for definition in DEFINITIONS)
        return -mder.nig.log_evidence(nig, y) + lam * jnp.where(amini, first, second)

    return loss


def _outputs(network: mder.PerMember, snapshots: list[Any], X: np.ndarray) -> mder.NIG:
    """What all members predict at each snapshot, (records, members, points)."""
    x = jnp.asarray(X)
    forward = jax.vmap(lambda own, params: _network(own).apply(params, x))
    program = jax.jit(lambda snapshots: jax.lax.map(lambda params: forward(network.values, params), snapshots))
    return jax.tree.map(np.asarray, program(jax.tree.map(lambda *leaves: np.stack(leaves), *snapshots)))


def _nll(nig: mder.NIG, y: np.ndarray) -> np.ndarray:
    """Mean over the data of −ln St_2α(y | μ₀, β(1+κ)/(κα)), in float64."""
    mu, kappa, alpha, beta = (np.asarray(part, np.float64) for part in (nig.mu, nig.kappa, nig.alpha, nig.beta))
    return -stats.t.logpdf(y, 2 * alpha, mu, np.sqrt(beta / alpha * (1 + 1 / kappa))).mean(axis=-1)
