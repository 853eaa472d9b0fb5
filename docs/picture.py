"""Draws the README's picture, what `MDERRegressor` predicts on data of known truth: `python docs/picture.py`."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np

from mder_jax import MDERRegressor, plotting


def correlation(x: np.ndarray) -> np.ndarray:
    """Of the noise of the two targets."""
    return 0.9 * np.sin(x)


def draw_targets(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Two targets whose noise grows with x, and whose correlation changes its sign."""
    noise = random.normal(size=(len(x), 2))
    rho = correlation(x)
    noise[:, 1] = rho * noise[:, 0] + np.sqrt(1 - rho**2) * noise[:, 1]
    return np.stack([x + np.sin(x), 2 * np.cos(x)], axis=1) + (0.25 + 0.05 * x[:, None]) * noise


def main() -> None:
    """Fits on 800 rows and writes `picture.png` beside this file."""
    random = np.random.default_rng(0)
    x = random.uniform(-3, 3, 800)
    Y = draw_targets(x, random)
    model = MDERRegressor(random_state=0).fit(x[:, None], Y)
    figure, (targets, both, parts) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")

    places = np.linspace(-2.8, 2.8, 12)
    targets.plot(*Y.T, ".", color="0.8", markersize=3, zorder=0)
    plotting.ellipses(model.predict_dist(places[:, None]), rows=range(len(places)), ax=targets)
    targets.set_title("a mean and a covariance for every row")
    targets.legend(loc="lower center", frameon=False, fontsize="small")

    grid = np.linspace(-4.5, 4.5, 181)
    u = model.predict_uncertainty(grid[:, None])
    inside = np.abs(grid) < 3
    rho = u.total[:, 0, 1] / np.sqrt(u.total[:, 0, 0] * u.total[:, 1, 1])
    both.plot(grid[inside], correlation(grid[inside]), color="black", linestyle=":", label="truth")
    both.plot(grid[inside], rho[inside], label="predicted")
    both.set(title="correlation of the two targets", xlabel="x", ylim=(-1.1, 1.1))
    both.legend(frameon=False)

    for name, part in (("aleatoric", u.aleatoric), ("epistemic", u.epistemic)):
        parts.plot(grid, np.sqrt(part[:, 0, 0]), label=name)
    parts.plot(grid[inside], 0.25 + 0.05 * grid[inside], color="black", linestyle=":", label="noise, truth")
    for side in ((grid[0], -3), (3, grid[-1])):
        parts.axvspan(*side, color="0.92", zorder=-1)
    parts.set(
        title="standard deviations of target 0 (grey: no data)", xlabel="x", xlim=(grid[0], grid[-1]), ylim=(0, None)
    )
    parts.legend(frameon=False)
    figure.savefig(pathlib.Path(__file__).with_name("picture.png"), dpi=110)


if __name__ == "__main__":
    main()
