"""Targets as the networks learn them: t = f(y), increasing or decreasing, for each target; results return by f⁻¹."""

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mder_jax._arguments import is_integer
from mder_jax.student_t import Interval

# Moments are of the distribution whose outer 0.1 % on each side is moved to these quantiles, and what is further than 4
# standard deviations of the training targets from their mean to these points.
FOLDED, PRIOR = 0.001, 4.0
# The trapezoidal rule for the expectation over a t: step and number of nodes on each side.
_STEP, _NODES = 0.2, 45
# An inverse must return to its target within this fraction of the targets' spread.
_RETURN = 1e-3
# How many ranges of the targets beyond those of the fit an inverse is trusted.
_REACH = 10
# Quantiles of the training targets by which a transformer is recognised.
_PROBES = np.linspace(0, 1, 9)


class _Formula(NamedTuple):
    forward: Callable[[np.ndarray], np.ndarray]
    back: Callable[[Any, Any], Any]  # of numpy or jax.numpy, and t
    log_slope: Callable[[np.ndarray], np.ndarray]
    defined: Callable[[np.ndarray], np.ndarray]
    wanted: str


FORMULAS = {
    "log": _Formula(np.log, lambda xp, t: xp.exp(t), lambda y: -np.log(y), lambda y: y > 0, "above 0"),
    "log1p": _Formula(np.log1p, lambda xp, t: xp.expm1(t), lambda y: -np.log1p(y), lambda y: y > -1, "above -1"),
    "sqrt": _Formula(
        np.sqrt,
        lambda xp, t: xp.square(xp.maximum(t, 0.0)),
        lambda y: -0.5 * np.log(y) - math.log(2),
        lambda y: y >= 0,
        "0 or more",
    ),
}
_SILENT = np.errstate(all="ignore")
CHOICES = f"{', '.join(map(repr, FORMULAS))}, a transformer with inverse_transform, or None"


@dataclass(frozen=True)
class NamedMap:
    """ln y, ln(1 + y) or √y; the inverse of the root is max(t, 0)²."""

    name: str
    decreasing = False

    @_SILENT
    def forward(self, y: np.ndarray) -> np.ndarray:
        """t, −∞ where y is outside the domain, NaN where it is NaN."""
        t = FORMULAS[self.name].forward(y)
        return np.where(np.isnan(t) & ~np.isnan(y), -np.inf, t)

    @_SILENT
    def back(self, t: np.ndarray) -> np.ndarray:
        """y."""
        return FORMULAS[self.name].back(np, t)

    @_SILENT
    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """ln|dt/dy|."""
        return FORMULAS[self.name].log_slope(y)

    def undefined(self, y: np.ndarray) -> tuple[np.ndarray, str]:
        """Where there is no t, and what y must be."""
        formula = FORMULAS[self.name]
        return ~(np.isnan(y) | formula.defined(y)), formula.wanted


@dataclass(frozen=True)
class FittedMap:
    """The map of a fitted scikit-learn transformer of one column.

    Its inverse is used where it leads back to t, at most ten ranges of the targets beyond those of the fit, and is
    constant outside: there a square, say, would turn around, and a power with a pole would explode.

    Args:
      name: of its class.
      points: (K, 2), values y of the fit in increasing order, and their t.
      transformer: fitted; None if a file did not hold it and it was not given yet.
    """

    name: str
    points: np.ndarray
    transformer: Any = None

    @property
    def decreasing(self) -> bool:
        """Whether t falls as y rises."""
        return bool(self.points[-1, 1] < self.points[0, 1])

    @property
    def _units(self) -> np.ndarray:
        """Of y and t: a quarter of their range in the fit, or 1."""
        spread = np.abs(self.points[-1] - self.points[0]) / 4
        return np.where(spread > 0, spread, 1.0)

    @_SILENT
    def _applied(self, method: Callable[[np.ndarray], Any], values: np.ndarray) -> np.ndarray:
        """NaN stays, ±∞ stays or changes its sign, and NaN of a number becomes −∞."""
        values = np.asarray(values, np.float64)
        found, finite = np.where(self.decreasing, -values, values), np.isfinite(values)
        if finite.any():
            made = np.asarray(method(values[finite][:, None]), np.float64).reshape(-1)
            found[finite] = np.where(np.isnan(made), -np.inf, made)
        return found

    def forward(self, y: np.ndarray) -> np.ndarray:
        """t."""
        return self._applied(self.transformer.transform, y)

    def back(self, t: np.ndarray) -> np.ndarray:
        """y."""
        return self._applied(self.transformer.inverse_transform, np.clip(t, *self._ends))

    @functools.cached_property
    def _ends(self) -> tuple[float, float]:
        """The lowest and the highest t at which the inverse is used."""
        low, high = np.sort(self.points[[0, -1], 1])
        with warnings.catch_warnings(action="ignore"):  # of NaN, which is what is looked for
            return self._end(low, -1), self._end(high, 1)

    def _end(self, inside: float, side: int) -> float:
        """The last t, going up or down from one of the fit, that is trusted; by halving an interval of 1000 ranges."""
        good, bad = 0.0, 4000 * self._units[1]
        for _ in range(60):
            middle = 0.5 * (good + bad)
            good, bad = (middle, bad) if self._is_trusted(inside + side * middle, side) else (good, middle)
        return inside + side * good

    @_SILENT
    def _is_trusted(self, t: float, side: int) -> bool:
        """Whether the inverse at t, beyond those of the fit, is beyond the targets of the fit and leads back to t."""
        up = (side > 0) != self.decreasing
        try:
            y = np.asarray(self.transformer.inverse_transform(np.full((1, 1), t))).item()
            again = np.asarray(self.transformer.transform(np.full((1, 1), y))).item()
        except ValueError:  # y is outside the domain
            return False
        beyond = y - self.points[-1, 0] if up else self.points[0, 0] - y
        near = -1e-6 <= beyond / self._units[0] <= 4 * _REACH
        return near and abs(again - t) <= 1e-6 * (self._units[1] + abs(t))

    @_SILENT
    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """ln|dt/dy| by central differences of the inverse; −∞ where y is no value of the inverse."""
        t, step = self.forward(y), 1e-5 * self._units[1]
        below, at, above = (self._applied(self.transformer.inverse_transform, t + k * step) for k in (-1, 0, 1))
        reached = np.abs(at - y) <= _RETURN * self._units[0] + 1e-9 * np.abs(y)
        return np.where(reached | np.isnan(y), math.log(2 * step) - np.log(np.abs(above - below)), -np.inf)

    def undefined(self, y: np.ndarray) -> tuple[np.ndarray, str]:
        """Where there is no t, and what y must be."""
        return np.isneginf(self.forward(y)) & np.isfinite(y), f"in the domain of {self.name}"


Map = NamedMap | FittedMap


@dataclass(frozen=True)
class TargetTransforms:
    """The maps of n targets, None for those that stay as they are, and the targets' names."""

    maps: tuple[Map | None, ...]
    names: tuple[str, ...]

    def _each(self, method: str, values: Any, otherwise: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        values = np.asarray(values, np.float64)
        columns = (values[..., j] for j in range(len(self.maps)))
        made = [
            otherwise(column) if each is None else getattr(each, method)(column)
            for each, column in zip(self.maps, columns, strict=True)
        ]
        return np.stack(made, axis=-1)

    def forward(self, Y: Any) -> np.ndarray:
        """t of targets (..., n), infinite where there is none; NaN stays."""
        return self._each("forward", Y, lambda y: y)

    def back(self, T: Any) -> np.ndarray:
        """y of transformed targets (..., n)."""
        return self._each("back", T, lambda t: t)

    def log_slope(self, Y: Any) -> np.ndarray:
        """ln|dt/dy| of targets (..., n), 0 for those that stay as they are."""
        return self._each("log_slope", Y, np.zeros_like)

    def checked(self, Y: np.ndarray) -> np.ndarray:
        """t of targets (N, n); an error if one has none."""
        for j, each in enumerate(self.maps):
            if each is None:
                continue
            bad, wanted = each.undefined(Y[:, j])
            if bad.any():
                first = int(bad.argmax())
                raise ValueError(
                    f"target_transform of {self.names[j]!r} is {each.name}, for which it must be {wanted}; it is not "
                    f"in {bad.sum()} of {len(Y)} rows, first {Y[first, j]:g} in row {first}. {_remedy(each)}"
                )
        return self.forward(Y)

    @property
    def changed(self) -> np.ndarray:
        """Which targets have a map, (n,)."""
        return np.array([each is not None for each in self.maps])

    @property
    def decreasing(self) -> np.ndarray:
        """Which of the maps are decreasing, (n,)."""
        return np.array([each is not None and each.decreasing for each in self.maps])

    def labels(self) -> list[str]:
        """Names of the transformed targets, such as log(price)."""
        return [name if each is None else f"{each.name}({name})" for each, name in self._named()]

    def settings(self) -> list[Any]:
        """What `target_transform` was, for each target: None, a name or a transformer."""
        return [each.transformer if isinstance(each, FittedMap) else each and each.name for each in self.maps]

    def _named(self) -> Any:
        return zip(self.maps, self.names, strict=True)

    def back_interval(self, found: Interval) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, (N, n) both, in original units; a decreasing map swaps them."""
        lower, upper = map(self.back, found)
        return np.where(self.decreasing, upper, lower), np.where(self.decreasing, lower, upper)


def _remedy(each: Map) -> str:
    others = {"log": "log1p or sqrt for zeros, or None", "log1p": "None", "sqrt": "None"}
    return f"Correct these targets or choose another transform ({others.get(each.name, 'None')} for this target)"


def folded_moments(
    loc: Any, scale: Any, df: Any, ends: Any, back: Callable[[Any], Any], xp: Any = np, shares: Any = None
) -> Any:
    r"""Mean and standard deviation of g(T), g = f⁻¹, for a mixture of M univariate t, (M, N) -> (N,) twice.

    .. math:: E[g(\min(\max(T, a), b))] = \frac1M \sum_i \sum_k w_{ik}\, g(\min(\max(loc_i + scale_i x_{ik}, a), b))

    with x = c sinh(u/c), c = √df, at evenly spaced u, and weights in proportion to the density of a t in u. The ends a
    and b, (N,), are quantiles of the mixture, within 4 standard deviations of the training targets: without them the
    mean of exp(T) would be infinite, and that of a row far from training would be beyond all experience.
    """
    df = xp.minimum(df, 1e6)[..., None]
    c = xp.sqrt(df)
    u = xp.asarray(_STEP * np.arange(-_NODES, _NODES + 1), df.dtype).reshape(1, 1, -1) / c
    x = c * xp.sinh(u)
    weights = xp.cosh(u) * xp.exp(-0.5 * (df + 1) * xp.log1p(x * x / df))
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    weights = weights / len(loc) if shares is None else weights * shares[:, None, None]
    low, high = (end[None, :, None] for end in ends)
    values = back(xp.clip(loc[..., None] + scale[..., None] * x, low, high))
    mean = xp.sum(weights * values, axis=(0, 2))
    variance = xp.sum(weights * (values - mean[None, :, None]) ** 2, axis=(0, 2))
    return mean, xp.where(xp.isfinite(mean), xp.sqrt(variance), xp.inf)


def within_prior(mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∓ 4 for each target, (n,), in units of its standard deviation in training; ∓∞ if it was not standardised."""
    limit = np.where((mean == 0) & (std == 1), np.inf, PRIOR)
    return -limit, limit


def fit_transforms(setting: Any, Y: np.ndarray, names: Sequence[str]) -> TargetTransforms | None:
    """The maps of a setting `target_transform`, transformers cloned and fitted to the columns of Y, (N, n)."""
    each = resolved(setting, names)
    if all(one is None for one in each):
        return None
    maps = tuple(None if one is None else _fitted(one, Y[:, j], names[j]) for j, one in enumerate(each))
    made = TargetTransforms(maps, tuple(names))
    made.checked(Y)
    return made


def kinds_of(setting: Any, names: Sequence[str]) -> list[str | None]:
    """None or a name for each target, that of the class for a transformer."""
    each = resolved(setting, names)
    return [one if one is None or isinstance(one, str) else type(one).__name__ for one in each]


def resolved(setting: Any, names: Sequence[str]) -> list[Any]:
    """None, a name or a transformer for each target."""
    if isinstance(setting, Mapping):
        return _from_mapping(setting, names)
    if isinstance(setting, list | tuple):
        if len(setting) != len(names):
            raise ValueError(
                f"target_transform has {len(setting)} entries for {len(names)} targets, {_quoted(names)}; give one each"
            )
        return [_checked_setting(one) for one in setting]
    return [_checked_setting(setting)] * len(names)


def _from_mapping(setting: Mapping[Any, Any], names: Sequence[str]) -> list[Any]:
    each: list[Any] = [None] * len(names)
    for key, one in setting.items():
        if key in names:
            place = list(names).index(key)
        elif is_integer(key) and 0 <= key < len(names):
            place = int(key)
        else:
            wanted = f"the targets are {_quoted(names)}, or 0 to {len(names) - 1}"
            raise ValueError(f"target_transform has no target {key!r:.60}; {wanted}")
        each[place] = _checked_setting(one)
    return each


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _checked_setting(one: Any) -> Any:
    if one is None or (isinstance(one, str) and one in FORMULAS):
        return one
    if isinstance(one, type):
        raise ValueError(f"target_transform must be {CHOICES}; got the class {one.__name__}: give an instance")
    missing = [name for name in ("fit", "transform", "inverse_transform") if not callable(getattr(one, name, None))]
    if not missing:
        return one
    lacks = f", which has no {missing[0]}" if len(missing) < 3 else ""
    raise ValueError(f"target_transform must be {CHOICES}, for all targets or for each; got {one!r:.60}{lacks}")


def _fitted(one: Any, y: np.ndarray, name: str) -> Map:
    if isinstance(one, str):
        return NamedMap(one)
    seen = y[~np.isnan(y)]
    try:
        with np.errstate(all="ignore"):
            transformer = clone(one).fit(seen[:, None])
        return fitted_map(transformer, seen)
    except ValueError as error:
        raise ValueError(f"target_transform of {name!r}: {error}") from None


@_SILENT
def fitted_map(transformer: Any, y: np.ndarray) -> FittedMap:
    """The map of a fitted transformer, which must be monotone and invertible at the values y, (K,)."""
    kind = type(transformer).__name__
    values = np.sort(y)
    t = np.asarray(transformer.transform(values[:, None]), np.float64)
    if t.shape != (len(values), 1):
        raise ValueError(f"{kind} makes {t.shape} of {len(values)} values; it must transform one column to one")
    t = t[:, 0]
    bad = ~np.isfinite(t)
    if bad.any():
        raise ValueError(f"{kind} gives {t[bad][0]} for {bad.sum()} of {len(t)} values, such as {values[bad][0]:g}")
    steps, slack = np.diff(t), 1e-9 * np.ptp(t)
    if not ((steps >= -slack).all() or (steps <= slack).all()):
        raise ValueError(f"{kind} is not monotone on the targets of the fit; each t must belong to one y")
    again = np.asarray(transformer.inverse_transform(t[:, None]), np.float64).reshape(-1)
    off = ~(np.abs(again - values) <= _RETURN * np.std(values) + 1e-9 * np.abs(values))
    if off.any():
        first = int(off.argmax())
        raise ValueError(
            f"inverse_transform of {kind} makes {again[first]:g} of the transformed {values[first]:g}; it must lead"
            " back (a FunctionTransformer needs inverse_func)"
        )
    probes = np.unique(np.quantile(values, _PROBES))
    return FittedMap(
        kind, np.stack([probes, np.asarray(transformer.transform(probes[:, None])).ravel()], 1), transformer
    )


def to_document(transforms: TargetTransforms | None) -> tuple[list[Any] | None, dict[str, np.ndarray]]:
    """Names of the maps for JSON, those of transformers in a list, and the points of these."""
    if transforms is None:
        return None, {}
    fitted = {j: each for j, each in enumerate(transforms.maps) if isinstance(each, FittedMap)}
    names = [[each.name] if isinstance(each, FittedMap) else each and each.name for each in transforms.maps]
    return names, {f"transform/{j}": each.points for j, each in fitted.items()}


def from_document(document: Any, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> TargetTransforms | None:
    """The inverse of `to_document`, without transformers; anything else raises a ValueError, TypeError or KeyError."""
    if document is None:
        return None
    if not isinstance(document, list) or len(document) != len(names):
        raise ValueError(
            f"target_transforms must be null or one for each of {len(names)} targets; got {document!r:.60}"
        )
    maps = tuple(_read_map(entry, arrays, j) for j, entry in enumerate(document))
    return TargetTransforms(maps, tuple(names))


def _read_map(entry: Any, arrays: Mapping[str, np.ndarray], j: int) -> Map | None:
    if entry is None:
        return None
    if isinstance(entry, str) and entry in FORMULAS:
        return NamedMap(entry)
    if not (isinstance(entry, list) and len(entry) == 1 and isinstance(entry[0], str)):
        raise ValueError(f"a target transform must be null, a name or a list of one name; got {entry!r:.60}")
    points = np.asarray(arrays[f"transform/{j}"], np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points) or not np.isfinite(points).all():
        raise ValueError(f"the points of a target transform must be finite, (K, 2); got {points.shape}")
    return FittedMap(entry[0], points)


def with_transformers(transforms: TargetTransforms | None, given: Any) -> TargetTransforms | None:
    """The maps with the fitted transformers that a file cannot hold, given as `target_transform` may be."""
    if transforms is None:
        if given is not None:
            raise ValueError("the model has no target_transform; load it without one")
        return None
    named = list(zip(transforms.maps, resolved(given, transforms.names), transforms.names, strict=True))
    return replace(transforms, maps=tuple(_with_transformer(*one) for one in named))


def _with_transformer(each: Map | None, given: Any, name: str) -> Map | None:
    if not isinstance(each, FittedMap):
        return each
    needed = f"target {name!r} was transformed by a {each.name}, which is code and not in the file"
    if given is None or isinstance(given, str):
        raise ValueError(f"{needed}; give it, fitted, as target_transform of load")
    try:
        t = np.asarray(given.transform(each.points[:, :1]), np.float64)
    except (NotFittedError, ValueError) as error:
        raise ValueError(f"{needed}; the {type(given).__name__} that was given does not work: {error}") from None
    if t.shape != (len(each.points), 1) or not np.allclose(t[:, 0], each.points[:, 1], rtol=1e-6, atol=1e-9):
        raise ValueError(f"{needed}; the {type(given).__name__} that was given makes other numbers of the same targets")
    return replace(each, transformer=given)
