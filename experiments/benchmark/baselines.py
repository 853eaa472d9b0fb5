"""Methods that are not networks: ridge regression and trees with a constant covariance, NGBoost, Gaussian processes."""

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark.splits import Tasks

Mean = Callable[[np.ndarray], np.ndarray]
Fitted = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray | None]]
TREES = 100
BOOSTING_STEPS, BOOSTING_RATE, BOOSTING_PATIENCE, BOOSTING_ROWS = 300, 0.05, 20, 1000
ROWS_FOR_KERNEL, MOST_ROWS_OF_PROCESS = 500, 2000


class Split(NamedTuple):
    """One split's forecast: mean (K, n), Cholesky factors (K, n, n), epistemic (K,) or None; times; why it failed."""

    mean: np.ndarray
    factor: np.ndarray
    epistemic: np.ndarray | None
    training: float
    predicting: float
    failure: str = ""


def each_split(fit: Callable[[np.ndarray, np.ndarray], Fitted], tasks: Tasks) -> list[Split]:
    """Fit and predict split by split, in double precision; a split that fails has a forecast of NaN and a reason."""
    X, Y, X_test = (np.asarray(part, np.float64) for part in (tasks.X, tasks.Y, tasks.X_test))
    return [_one_split(fit, *parts) for parts in zip(X, Y, X_test, strict=True)]


def _one_split(fit: Any, X: np.ndarray, Y: np.ndarray, X_test: np.ndarray) -> Split:
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = fit(X, Y)
            middle = time.perf_counter()
            mean, factor, epistemic = fitted(X_test)
        return Split(mean, factor, epistemic, middle - begin, time.perf_counter() - middle)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        rows, n = len(X_test), Y.shape[1]
        nothing, factor = np.full((rows, n), np.nan), np.broadcast_to(np.eye(n), (rows, n, n))
        return Split(nothing, factor, None, time.perf_counter() - begin, 0.0, f"{type(error).__name__}: {error}")


def without_correlations(factor: np.ndarray) -> np.ndarray:
    """Cholesky factors of the same variances without the covariances, (..., n, n)."""
    return np.sqrt(np.sum(factor**2, axis=-1))[..., None] * np.eye(factor.shape[-1], dtype=factor.dtype)


def _around(predict: Mean, residuals: np.ndarray) -> Fitted:
    """A constant covariance, that of the residuals, around a mean."""
    factor = np.linalg.cholesky(residuals.T @ residuals / len(residuals))
    n = len(factor)
    return lambda x: (predict(x).reshape(-1, n), np.broadcast_to(factor, (len(x), n, n)), None)


def ridge(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """Ridge regression; the covariance is that of the leave-one-out residuals."""
    return _around(*ridge_and_residuals(X, Y))


def ridge_and_residuals(X: np.ndarray, Y: np.ndarray) -> tuple[Mean, np.ndarray]:
    """Ridge regression, its strength by leave-one-out errors, and its leave-one-out residuals."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(np.logspace(-4, 4, 17)).fit(X, Y)
    residuals = Y - model.predict(X).reshape(Y.shape)
    return model.predict, residuals / (1 - _leverage(X, model.alpha_))[:, None]


def _leverage(X: np.ndarray, alpha: float) -> np.ndarray:
    """h_i = 1/N + z_i (Zᵀ Z + α I)⁻¹ z_iᵀ, z_i = x_i − x̄: by leaving row i out its residual grows by 1/(1 − h_i)."""
    Z = X - X.mean(0)
    return 1 / len(Z) + np.sum(Z * np.linalg.solve(Z.T @ Z + alpha * np.eye(Z.shape[1]), Z.T).T, axis=1)


def trees(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """Extremely randomised trees; the covariance is that of the out-of-bag residuals."""
    from sklearn.ensemble import ExtraTreesRegressor

    targets = Y[:, 0] if Y.shape[1] == 1 else Y
    model = ExtraTreesRegressor(TREES, bootstrap=True, oob_score=True, random_state=0).fit(X, targets)
    return _around(model.predict, Y - model.oob_prediction_.reshape(Y.shape))


def boosting(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """NGBoost with a multivariate Gaussian; a tenth of the rows determines when to stop."""
    from ngboost import NGBRegressor
    from ngboost.distns import MultivariateNormal, Normal

    n, held_out = Y.shape[1], -(-len(X) // 10)
    model = NGBRegressor(
        Dist=MultivariateNormal(n) if n > 1 else Normal,
        n_estimators=BOOSTING_STEPS,
        learning_rate=BOOSTING_RATE,
        minibatch_frac=min(1.0, BOOSTING_ROWS / len(X)),
        early_stopping_rounds=BOOSTING_PATIENCE,
        random_state=0,
        verbose=False,
    )
    targets = Y if n > 1 else Y[:, 0]
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that there are rows to stop on
        model.fit(X[held_out:], targets[held_out:], X[:held_out], targets[:held_out])

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        found = model.pred_dist(x, max_iter=model.best_val_loss_itr)
        if n > 1:
            return found.mean(), np.linalg.cholesky(found.cov), None
        return found.loc[:, None], found.scale[:, None, None], None

    return predict


def process(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """A Gaussian process for each target: its kernel is fitted on some rows, and it sees all."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    def one(y: np.ndarray) -> Any:
        start = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(np.ones(X.shape[1]), (1e-2, 1e4)) + WhiteKernel(0.1, (1e-6, 10))
        chosen = GaussianProcessRegressor(start, random_state=0).fit(X[:ROWS_FOR_KERNEL], y[:ROWS_FOR_KERNEL])
        return GaussianProcessRegressor(chosen.kernel_, optimizer=None).fit(X, y)

    models = [one(Y[:, j]) for j in range(Y.shape[1])]

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = [model.predict(x, return_std=True) for model in models]
        mean, std = (np.stack(part, axis=1) for part in zip(*found, strict=True))
        noise = np.array([model.kernel_.k2.noise_level for model in models])
        return mean, std[:, :, None] * np.eye(len(models)), np.sum(np.maximum(std**2 - noise, 0.0), axis=1)

    return predict
