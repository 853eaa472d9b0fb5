"""Networks that people use on tables, with the defaults that their authors have tuned, on one core.

Both hold out a fifth of the rows, on which they choose their best epoch, as is their default; the noise around their
means is that of these rows, since a second training for it would double their cost.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.benchmark.noise import Predict, Residuals, around
from experiments.benchmark.rivals import rows_to_stop_on
from experiments.benchmark.table_encoder import TableEncoder

VALIDATION_FRACTION = 0.2


def realmlp(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """RealMLP-TD (Holzmüller et al. 2024), one network for all targets."""
    from pytabkit import RealMLP_TD_Regressor

    return _with_noise(lambda: RealMLP_TD_Regressor(**_on_one_core(seed)), X, Y, seed, together=True)


def tabm(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """TabM (Gorishniy et al. 2025) with the defaults of its authors' example, a model for each target."""
    from pytabkit import TabM_D_Regressor

    return _with_noise(lambda: TabM_D_Regressor(**_on_one_core(seed)), X, Y, seed, together=False)


def _on_one_core(seed: int) -> dict[str, Any]:
    return {"device": "cpu", "n_threads": 1, "random_state": seed, "verbosity": 0}


def _with_noise(make: Any, X: pa.Table, Y: np.ndarray, seed: int, together: bool) -> Iterator[Predict]:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)  # it tells of every training, and what it offers
    encoder = TableEncoder(X)
    frame = encoder.frame(X)
    _, held = rows_to_stop_on(len(Y), seed, VALIDATION_FRACTION)
    columns = [Y] if together and Y.shape[1] > 1 else list(Y.T)
    models = [make().fit(frame, np.float32(column), val_idxs=held) for column in columns]

    def point(table: pa.Table) -> np.ndarray:
        rows = encoder.frame(table)
        return np.concatenate([model.predict(rows).reshape(len(rows), -1) for model in models], axis=1)

    apart = X.take(held)
    yield from around(point, Residuals(apart, Y[held] - point(apart)), seed)
