"""Features that give a target away."""

from collections.abc import Mapping, Sequence

import numpy as np

from mder_jax._messages import listed, quoted
from mder_jax.columns.cells import floats
from mder_jax.columns.complaints import several

LEAST_ROWS = 10


def leaks(numbers: Mapping[str, np.ndarray], Y: np.ndarray, target_names: Sequence[str]) -> list[str]:
    """A message for each feature that is a copy of a target, or the sum of all targets if there are several.

    Values agree if they differ by at most 10⁻⁹ of the larger one, in all rows where both are there; at least 10 such
    rows and two different values are needed.

    Args:
      numbers: features (N,) by name, NaN where missing.
      Y: targets (N, n), NaN where missing.
      target_names: n of them.

    Example:
      >>> import numpy as np
      >>> from mder_jax import columns
      >>> Y = np.arange(24.0).reshape(12, 2)
      >>> columns.leaks({"bikers": Y.sum(axis=1), "hour": np.arange(12.0)}, Y, ["casual", "registered"])
      ["column 'bikers' is the sum of the targets 'casual', 'registered'"]
    """
    target_names = [str(name) for name in several("target_names", target_names)]
    Y = floats("Y", Y)
    if not isinstance(numbers, Mapping):
        raise TypeError(f"numbers must hold features by name; got {type(numbers).__name__}")
    if Y.ndim != 2 or Y.shape[1] != len(target_names):
        raise ValueError(f"Y must have shape (N, {len(target_names)}), a column for each name; got {Y.shape}")
    found = []
    for name, values in numbers.items():
        values = floats(f"column {quoted(name)}", values)
        if values.shape != Y.shape[:1]:
            raise ValueError(f"column {quoted(name)} must have shape {Y.shape[:1]}, as Y has rows; got {values.shape}")
        same = [target for target, y in zip(target_names, Y.T, strict=True) if _agree(values, y)]
        if same:
            found.append(f"column {quoted(name)} is a copy of the target {listed(same)}")
        elif len(target_names) > 1 and _agree(values, Y.sum(axis=1)):
            found.append(f"column {quoted(name)} is the sum of the targets {listed(target_names)}")
    return found


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if len(a) < LEAST_ROWS or np.ptp(b) == 0:
        return False
    return bool((np.abs(a - b) <= 1e-9 * np.maximum(np.abs(a), np.abs(b))).all())
