"""The predictor of a fitted `MDERRegressor` as an artefact of `jax.export`."""

import pathlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from mder_jax import linalg
from mder_jax._files import write_whole
from mder_jax.columns import Column, Encoding
from mder_jax.columns.judging import OF_GAP
from mder_jax.columns.ranges import MARGIN, MOST_NOVEL, SAME, Range
from mder_jax.estimator._predicted_rows import Combination, mixture_moments, traced_moments, with_members, with_novelty
from mder_jax.estimator._predictor import Predictor
from mder_jax.estimator._rows import CLIP, MOST_LEVELS
from mder_jax.estimator._standardizer import Standardizer
from mder_jax.estimator.beside import Beside
from mder_jax.estimator.forest_member import DF, ForestMember
from mder_jax.estimator.process_member import ProcessMember
from mder_jax.estimator.target_transforms import FittedMap, TargetTransforms
from mder_jax.niw import NIW
from mder_jax.process import LEAST_VARIANCE


def export(predictor: Predictor, encoding: Encoding, path: str | pathlib.Path) -> None:
    """Write the moments in original units as a program for any number of rows, on CPU, GPU and TPU.

    Its input are the columns of the table if all are numbers, and those of the encoded table otherwise.
    """
    transform = predictor.transform
    _refuse_transformers(transform)
    _warn_of_lost_digits(predictor.targets)
    (x_mean, x_std), (y_mean, y_std), scale = jax.tree.map(
        np.float32, (predictor.inputs, predictor.targets, predictor.scale)
    )
    # So that large numbers keep their digits.
    x_rest = np.asarray(predictor.inputs.mean - np.asarray(x_mean, np.float64), np.float32)
    beside = predictor.beside
    combination = Combination(scale, None if beside is None else beside.log_weights(predictor.members))
    network, params = predictor.design.network(), jax.tree.map(jnp.asarray, predictor.params)
    of_numbers = all(column.kind in ("number", "boolean") for column in encoding.columns)

    def in_original_units(x: Array) -> dict[str, Any]:
        x, novelty = _encoded(encoding.columns, x) if of_numbers else (x, jnp.zeros_like(x[:, 0]))
        z = ((x - x_mean[None]) - x_rest[None]) / x_std[None]
        outputs = jax.vmap(network.apply, (0, None))(params, z)
        outputs = outputs if beside is None else with_members(outputs, _of_further(beside, z))
        outputs = with_novelty(outputs, novelty)
        mean, aleatoric, within, between = mixture_moments(outputs, combination)
        mean, S = y_mean[None] + y_std[None] * mean, jnp.broadcast_to(y_std[None], mean.shape)
        if transform is not None:
            std = jnp.sqrt(linalg.diagonal(aleatoric + within + between))
            mean, std_of_y = traced_moments(transform, outputs, combination, (y_mean, y_std), (mean, S * std))
            S = std_of_y / std
        epistemic = within + between
        covariances = {"aleatoric": aleatoric, "epistemic": epistemic, "total": aleatoric + epistemic}
        scaled = {name: S[:, :, None] * S[:, None, :] * part for name, part in covariances.items()}
        return {"mean": mean} | scaled

    rows = jax.export.symbolic_shape("rows")[0]
    width = encoding.table_width if of_numbers else encoding.width
    example = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    exported = jax.export.export(jax.jit(in_original_units), platforms=("cpu", "cuda", "tpu"))(example)
    write_whole(path, bytes(exported.serialize()))


def _of_further(beside: Beside, z: Array) -> NIW:
    """What `Beside.predict` gives for standardised rows (N, d), in a program."""
    with jax.enable_x64(True):
        x = _plain_inputs(z.astype(jnp.float64), next(iter(beside.members.values())).embedded)
        each = [
            _of_process(member, x) if isinstance(member, ProcessMember) else _of_forest(member, x)
            for member in beside.members.values()
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1).astype(jnp.float32), *each)


def _of_process(member: ProcessMember, x: Array) -> NIW:
    """What `ProcessMember.predict` gives for plain inputs (N, d).

    φ and the root of φᵀ Λ⁻¹ φ are differences of large numbers, so they are computed in double precision.
    """
    process, n = member.process, len(member.process.Psi)
    lengths, linear, constant, noise = process.kernel
    landmarks = jnp.asarray(process.landmarks)
    apart = (x / lengths[None])[:, None] - (process.landmarks / lengths)[None]
    squares = jnp.sum(apart**2, axis=-1)
    s = jnp.sqrt(5 * squares)
    near = constant + linear * (x @ landmarks.T) + (1 + s + s * s / 3) * jnp.exp(-s)
    features, spread = (near @ jnp.asarray(part).T for part in process.whiteners)
    at = constant + linear * jnp.sum(x * x, axis=1) + 1.0
    unexplained = jnp.maximum(at - jnp.sum(features**2, axis=1), 0.0)
    kappa = 1 / jnp.maximum(unexplained / noise + jnp.sum(spread**2, axis=1), LEAST_VARIANCE)
    L = jnp.broadcast_to(process.factor[None], (*kappa.shape, n, n))
    return NIW(features @ jnp.asarray(process.coefficients), L, kappa, jnp.full_like(kappa, process.nu))


def _of_forest(member: ForestMember, x: Array) -> NIW:
    """What `ForestMember.predict` gives for plain inputs (N, d)."""
    forest, n = member.forest, member.forest.targets.shape[1]
    column, threshold, right = map(jnp.asarray, forest[:3])
    cells = x.astype(jnp.float32)

    def down(node: Array) -> Array:
        left = jnp.take_along_axis(cells, jnp.maximum(column[node], 0), axis=1) <= threshold[node]
        return jnp.where(column[node] < 0, node, jnp.where(left, node + 1, right[node]))

    start = jnp.broadcast_to(forest.roots, (x.shape[0], len(forest.roots)))
    leaves = lax.while_loop(lambda node: jnp.any(column[node] >= 0), down, start)
    rows = jnp.sort(~column[leaves], axis=1)
    y = jnp.asarray(forest.targets)[rows].astype(x.dtype)
    mu = jnp.mean(y, axis=1)
    d = y - mu[:, None]
    scale = member.spread * jnp.einsum("nti,ntj->nij", d, d) / rows.shape[1] + member.floor * jnp.eye(n)[None]
    place = jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape)
    begins = jnp.concatenate([jnp.ones_like(rows[:, :1], bool), rows[:, 1:] != rows[:, :-1]], axis=1)
    repeat = place - lax.cummax(jnp.where(begins, place, 0), axis=1)  # 0, 1, ... among answers with one row
    kappa, nu = rows.shape[1] ** 2 / jnp.sum(2 * repeat + 1, axis=1), DF + n - 1  # 1 + 3 + 5 + ... is a square
    L = linalg.cholesky(scale * (DF / nu * kappa / (1 + kappa))[:, None, None])
    return NIW(mu, L, kappa, jnp.full_like(kappa, nu))


def _plain_inputs(z: Array, embedded: tuple[tuple[int, int], ...]) -> Array:
    """As `plain_inputs`."""
    named = [column for column, _ in embedded]
    numbers = z[:, np.array([column for column in range(z.shape[1]) if column not in named], int)]
    shown = [(column, count) for column, count in embedded if count <= MOST_LEVELS]
    levels = [z[:, [column]] == jnp.arange(count, dtype=z.dtype)[None] for column, count in shown]
    return jnp.concatenate(
        [numbers / jnp.hypot(1.0, numbers / CLIP), *(level.astype(z.dtype) for level in levels)], axis=1
    )


def _encoded(columns: tuple[Column, ...], x: Array) -> tuple[Array, Array]:
    """What `Encoding.encode` makes of columns of numbers, (N, width), and the novelty of the rows, (N,)."""
    parts, novelty = [], jnp.zeros_like(x[:, 0])
    for column in columns:
        values, missing = x[:, column.position], jnp.isnan(x[:, column.position])
        drawn, far = _drawn_to(column.ranges[0], values)
        parts.append(jnp.where(missing, np.float32(column.ranges[0].fill), drawn))
        novelty += jnp.where(missing, np.float32(0.0 if column.gaps else OF_GAP), far)
        if column.indicator:
            parts.append(missing.astype(x.dtype))
    return jnp.stack(parts, axis=1), novelty


def _drawn_to(limits: Range, values: Array) -> tuple[Array, Array]:
    """Values (N,) as `ranges.squash` draws them to their range, and their novelty as in `ranges.novelty`."""
    inside, beyond = _clipped(values, limits.low, limits.high)
    m = np.float32(MARGIN * (limits.high - limits.low))
    drawn = inside
    if m:  # m beyond / (m + beyond), which may overflow
        drawn = inside + jnp.sign(values - inside) * (m / (1 + m / beyond))
    low, high = limits.low - limits.below, limits.high + limits.above
    unknown, m = _clipped(values, low, high)[1], np.float32(MARGIN * (high - low))
    if m == 0:
        return drawn, (unknown > np.float32(SAME * abs(low))).astype(values.dtype)
    return drawn, jnp.minimum(jnp.minimum(unknown / m, np.float32(MOST_NOVEL)) ** 4, np.float32(MOST_NOVEL))


def _clipped(values: Array, low: float, high: float) -> tuple[Array, Array]:
    """Values within limits, and how far they were beyond them."""
    inside = jnp.clip(values, np.float32(low), np.float32(high))
    return inside, jnp.abs(values - inside)


def _warn_of_lost_digits(targets: Standardizer) -> None:
    """Warn if the means or covariances of targets do not fit into single precision."""
    lost = (np.abs(targets.mean) > 1e4 * targets.std) | (targets.std < 1e-16) | (targets.std > 1e16)
    if lost.any():
        where = int(lost.argmax())
        warnings.warn(
            f"target {where} is {targets.mean[where]:g} ± {targets.std[where]:g}, which float32 does not resolve; "
            "shift and scale it before the fit, or use the model itself",
            stacklevel=4,
        )


def _refuse_transformers(transforms: TargetTransforms | None) -> None:
    """Raise unless all transforms are by name: a program cannot call a transformer."""
    for name, each in zip(transforms.names, transforms.maps, strict=True) if transforms else ():
        if isinstance(each, FittedMap):
            raise ValueError(
                f"target {name!r} is transformed by a {each.name}, which jax cannot run; export needs 'log', 'log1p',"
                " 'sqrt' or None"
            )
