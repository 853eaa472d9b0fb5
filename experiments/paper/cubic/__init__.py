"""The univariate experiment of Amini et al. (2020) that the paper criticises: trained on [-4, 4], tested on [-7, 7].

Sec. 2.2 and the footnote of Sec. 4 (no figure in the paper). Command: ``python -m experiments cubic``. Run time on two
cores: about 12 s.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.training import train
from experiments.paper.cubic.claims import claims as claims, report as report
from experiments.paper.cubic.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.cubic.statistics import EDGE, GRID, KINDS, REACH


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and initial parameters", least=0)
    members: int = option(10, "networks of each kind", full=50, least=3)
    points: int = option(1000, "training points in [-4, 4]", least=10)
    new_points: int = option(700, "points in [-7, 7] for the scores", full=4000, least=50)
    batch_size: int = option(100, "rows of a minibatch")
    epochs: int = option(60, "passes over the data", full=1000)
    width: int = option(64, "units in each of the two hidden layers")
    lam: float = option(0.01, "weight λ of Amini's evidence regulariser", least=0)


def run(config: Config) -> dict[str, Any]:
    """Train all kinds from the same initial parameters, and describe their predictives on a grid and at new points."""
    seen, new = draw_tables(config)
    scale = float(np.std(seen.Y))
    ensemble = fit(config, seen, scale)
    x = np.concatenate([GRID[:, None].astype(np.float32), new.X])
    shapes = mder.predict(ensemble, x, reduce=lambda raw: shapes_of_all(raw, scale))
    parts = described({name: np.asarray(shape, float) for name, shape in shapes.items()})
    return {
        "lam": config.lam,
        "x": seen.X[:, 0],
        "y": seen.Y[:, 0],
        "new_x": new.X[:, 0],
        "new_y": new.Y[:, 0],
        "grid": {name: part[..., : len(GRID)] for name, part in parts.items()},
        "new": {name: part[..., len(GRID) :] for name, part in parts.items()},
        "diverged": int(np.sum(ensemble.diverged_at >= 0)),
    }


def draw_tables(config: Config) -> tuple[mder.datasets.Table, mder.datasets.Table]:
    """Training data, and new data over the whole range; y = x³ + N(0, 3²)."""

    @jax.jit
    def draw(key: Array) -> tuple[mder.datasets.Table, mder.datasets.Table]:
        seen, new = jax.random.split(key)
        wide = mder.datasets.cubic(new, config.new_points, -REACH, REACH)
        return mder.datasets.cubic(seen, config.points, -EDGE, EDGE), wide

    return jax.tree.map(np.asarray, draw(jax.random.key(config.seed)))


def fit(config: Config, seen: mder.datasets.Table, scale: float) -> mder.Ensemble:
    """All kinds in one program: network j of every kind starts from the same parameters."""
    keys = jax.random.key_data(jax.random.split(jax.random.key(config.seed + 1), config.members))
    steps = config.epochs * -(-config.points // config.batch_size)
    return train(
        "networks on the cubic",
        np.tile(keys, (len(KINDS), 1)),
        mder.mlp((config.width, config.width), 4),
        mder.PerMember(
            np.repeat(np.arange(len(KINDS)), config.members),
            lambda kind: lambda raw, y: loss_of_kind(kind, raw, y, scale, config.lam),
        ),
        seen.X,
        seen.Y,
        optimizer=optax.adam(optax.cosine_decay_schedule(5e-3, steps)),
        epochs=config.epochs,
        batch_size=config.batch_size,
    )


def nig_of_kind(kind: Array, raw: Array, scale: float) -> mder.NIG:
    """The NIG of these raw outputs (..., 4) in the unit of y; the network works in units of `scale`.

    Amini's link, or for the kind "coupled" that of the NIW with ν = κ, which leaves the last output unused.
    """
    free, coupled = mder.nig_link(raw), mder.from_niw(mder.niw_link(raw[..., :3], n=1))
    nig = jax.tree.map(lambda *pair: jnp.where(kind == KINDS.index("coupled"), *pair), coupled, free)
    return mder.NIG(scale * nig.mu, nig.kappa, nig.alpha, scale**2 * nig.beta)


def gaussian_of(raw: Array, scale: float) -> mder.StudentT:
    """The Gaussian of these raw outputs in the unit of y; two of the four are not used."""
    gaussian = mder.gaussian_link(raw[..., :2], n=1)
    return mder.StudentT(jnp.inf, scale * gaussian.loc, scale * gaussian.scale_tril)


def loss_of_kind(kind: Array, raw: Array, y: Array, scale: float, lam: float) -> Array:
    """Amini's loss with or without λ, the NLL of the coupled NIW, or eq:minnllgaussian, (rows,).

    The loss that is not meant gets zeros in place of raw outputs, so that its gradient cannot be NaN.
    """
    is_gaussian = kind == KINDS.index("Gaussian")
    weight = jnp.where(kind == KINDS.index("DER, λ > 0"), jnp.asarray(lam, raw.dtype), 0)
    nig = nig_of_kind(kind, jnp.where(is_gaussian, 0, raw), scale)
    gaussian = gaussian_of(jnp.where(is_gaussian, raw, 0), scale)
    evidential = mder.der_loss(nig, y[:, 0], lam=0.0) + weight * mder.evidence_regulariser(nig, y[:, 0])
    return jnp.where(is_gaussian, mder.gaussian_nll(gaussian, y), evidential)


def shapes_of_all(raw: Array, scale: float) -> dict[str, Array]:
    """Parameters of all evidential networks, (rows, kinds − 1, members), and of the Gaussians, (rows, members)."""
    raw = jnp.moveaxis(raw, 1, 0).reshape(raw.shape[1], len(KINDS), -1, raw.shape[-1])
    nig = nig_of_kind(jnp.arange(len(KINDS) - 1)[None, :, None], raw[:, :-1], scale)
    gaussian = gaussian_of(raw[:, -1], scale)
    own = {"loc": gaussian.loc[..., 0], "std": gaussian.scale_tril[..., 0, 0]}
    return {"mu": nig.mu, "kappa": nig.kappa, "alpha": nig.alpha, "beta": nig.beta, **own}


def described(shapes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The predictive t (mean, df, width) and the parts of its variance (eq:uncs), each (kinds, members, rows)."""
    mu, kappa, alpha, beta = (np.moveaxis(shapes[name], 0, -1) for name in ("mu", "kappa", "alpha", "beta"))
    loc, std = (np.moveaxis(shapes[name], 0, -1)[None] for name in ("loc", "std"))
    noise, infinite = beta / (alpha - 1), np.full_like(std, np.inf)
    parts = {
        "mean": (mu, loc),
        "df": (2 * alpha, infinite),
        "width": (np.sqrt(beta / alpha * (1 + 1 / kappa)), std),
        "aleatoric": (noise, std**2),
        "within": (noise / kappa, np.zeros_like(std)),
        "kappa": (kappa, infinite),
    }
    return {name: np.concatenate(pair) for name, pair in parts.items()}
