"""Standardised rows of a table."""

from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Standardised inputs (N, d) and targets (N, n), NaN where one was not observed, and weights (N,) or None."""

    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray | None = None
