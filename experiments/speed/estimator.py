"""`MDERRegressor` against `MLPRegressor` trained once for each member: same rows, layers, minibatches and epochs."""

import warnings
from typing import Any

import numpy as np

import mder_jax as mder
from experiments.harness.figures import new_figure
from experiments.speed.clock import in_turn, ratio, seconds, shown, spread, verdict
from mder_jax.ensemble import clear_programs

GOAL = 5.0
COLUMNS, TARGETS, MEMBERS, WIDTHS, BATCH = 20, 2, 10, (64, 64), 200
OURS, COMPILED, THEIRS = "MDERRegressor", "MDERRegressor again", "MLPRegressor"


def measure(rows: int, epochs: int, repeats: int, seed: int) -> dict[str, Any]:
    """Seconds of a whole `fit`: ours with compiling, ours compiled already, theirs for all members."""
    from sklearn.neural_network import MLPRegressor

    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, COLUMNS))
    Y = np.stack([np.sin(X[:, 0]) + X[:, 1], X[:, 1] * X[:, 2]], axis=1) + 0.3 * random.normal(size=(rows, TARGETS))
    shared: dict[str, Any] = {"hidden_layer_sizes": WIDTHS, "max_iter": epochs}
    shared |= {"batch_size": min(BATCH, rows), "learning_rate_init": 1e-3, "activation": "relu"}
    ours = mder.MDERRegressor(**shared, embedding=None, members=MEMBERS, early_stopping=False, random_state=seed)
    theirs = [
        MLPRegressor(**shared, random_state=seed + number, tol=0.0, n_iter_no_change=epochs)
        for number in range(MEMBERS)
    ]

    def fit_ours() -> float:
        return seconds(lambda: ours.fit(X, Y))

    def compile_and_fit_ours() -> float:
        clear_programs()
        return fit_ours()

    def fit_theirs() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may not have converged
            return seconds(lambda: [model.fit(X, Y) for model in theirs])

    times = in_turn("estimator", {OURS: compile_and_fit_ours, COMPILED: fit_ours, THEIRS: fit_theirs}, repeats)
    return {"rows": rows, "epochs": epochs, "seconds": times}


def report(results: dict[str, Any]) -> str:
    """Times and the goal."""
    times = results["seconds"]
    lines = [
        f"a fit of {MEMBERS} networks {COLUMNS}-{'-'.join(map(str, WIDTHS))}, {TARGETS} targets, "
        f"{results['rows']:,} rows, minibatches of {min(BATCH, results['rows'])}, {results['epochs']} epochs: "
        "seconds, median of rounds (range)"
    ]
    lines += [f"  {name:20} {shown(spread(seconds), 2)}" for name, seconds in times.items()]
    what = f"MLPRegressor {MEMBERS} times against MDERRegressor, compiling included"
    lines.append(verdict(what, ratio(times[THEIRS], times[OURS]), GOAL, at_least=True))
    lines.append(f"compiled already: {shown(ratio(times[THEIRS], times[COMPILED]))}")
    return "\n".join(lines)


def plot(results: dict[str, Any]) -> Any:
    """Median times."""
    figure, axes = new_figure(width=5.0, height=2.2)
    names = list(results["seconds"])
    axes.barh(names, [spread(results["seconds"][name])["median"] for name in names], color=["C0", "C2", "0.6"])
    axes.set_xlabel("seconds for all networks")
    return figure
