"""All methods through one interface: `run` gives one or more rows of the table, each with a forecast and its cost."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import _bench_neural as neural, _bench_others as others
from experiments._bench_neural import KINDS, Recipe
from experiments._bench_scores import Forecast, Members, OneByOne, gaussians
from experiments._bench_tasks import Tasks, set_apart
from mder_jax._job import take


class Row(NamedTuple):
    """A forecast under a name, what it cost a split in seconds, and what went wrong in each split (empty: nothing).

    `rates` are the learning rates that the splits have chosen, if it is made of networks.
    """

    name: str
    forecast: Forecast
    training: float
    predicting: float
    compiling: float
    failures: list[str]
    rates: list[float] | None = None


class Method(NamedTuple):
    """What it is, the rows it gives, whether it is made of networks, and `run`.

    Args:
      what: in words.
      rows: names of the rows of the table, in order.
      neural: whether it takes part in the comparison of networks.
      run: (tasks, recipe) -> rows.
      most_rows: of training, above which it is left out.
      most_targets: above which it is left out.
      most_splits: that it is run on.
    """

    what: str
    rows: tuple[str, ...]
    neural: bool
    run: Callable[[Tasks, Recipe], list[Row]]
    most_rows: int | None = None
    most_targets: int | None = None
    most_splits: int | None = None

    def left_out(self, tasks: Tasks) -> str:
        """Why it is not run on these tasks; empty if it is."""
        if self.most_rows and tasks.X.shape[1] > self.most_rows:
            return f"more than {self.most_rows} training rows"
        if self.most_targets and tasks.targets > self.most_targets:
            return f"more than {self.most_targets} targets"
        return ""


def _predictive(kind: str, found: Any) -> Members | OneByOne:
    return OneByOne(take(found, np.s_[:, 0])) if kind == "nig" else Members(found)


def _networks(kind: str, rows: tuple[str, ...], single: bool, tasks: Tasks, recipe: Recipe) -> list[Row]:
    """Rows of one kind of network: of the first member alone, of all, or of several readings of one."""
    trained = neural.fit(KINDS[kind], tasks, recipe, 1 if single else recipe.members)
    found, predicting = neural.outputs(trained, tasks.X_test)
    made = []
    for name in rows:
        alone = name.startswith("one ") and not single
        part = take(found, np.s_[:, :1]) if alone else found
        read_otherwise = np.mean(1 / found.kappa[:, 0], axis=-1) if "Meinert 2023" in name else None
        forecast = Forecast(_predictive(kind, part), read_otherwise)
        made.append(_row(name, forecast, trained, predicting, alone))
    return made


def _row(
    name: str, forecast: Forecast, trained: neural.Trained, predicting: float, alone: bool, more: Sequence[str] = ()
) -> Row:
    """A row of networks; one of them alone has its share of the time, in which its rate was chosen, too."""
    splits, members = jax.tree.leaves(trained.params)[0].shape[:2]
    share = 1 / (splits * members if alone else splits)
    failures = [f"{count} networks became non-finite" if count else "" for count in trained.diverged]
    if more:
        failures = ["; ".join(filter(None, both)) for both in zip(failures, more, strict=True)]
    cost = (trained.seconds * share, predicting * share, trained.compiling)
    return Row(name, forecast, *cost, failures, trained.rates.tolist())


def _calibrated(rows: tuple[str, ...], tasks: Tasks, recipe: Recipe) -> list[Row]:
    """The coupled NIW trained on a part of the training rows; the others calibrate scale and regions."""
    part, X, Y = set_apart(tasks, neural.CALIBRATION_SHARE)
    trained = neural.fit(KINDS["niw"], part, recipe, recipe.members)
    found, predicting = neural.outputs(trained, tasks.X_test)
    held_out, _ = neural.outputs(trained, X)
    made = []
    for name in rows:
        alone = name.startswith("one ")
        chosen = np.s_[:, :1] if alone else np.s_[:, :]
        members, apart = (_repeated(take(every, chosen), recipe.members) for every in (found, held_out))
        forecast, failures = neural.calibrated(members, apart, Y)
        made.append(_row(name, forecast, trained, predicting, alone, failures))
    return made


def _repeated(members: Any, count: int) -> Any:
    """One member as so many equal ones, which are the same mixture: one compiled program serves both."""
    return jax.tree.map(lambda leaf: leaf if leaf.shape[1] == count else np.repeat(leaf, count, axis=1), members)


def _others(fit: Callable[..., Any], rows: tuple[str, ...], tasks: Tasks, recipe: Recipe) -> list[Row]:
    """A method that is fitted split by split; of two rows the first leaves correlations out."""
    parts = others.each_split(fit, tasks)
    mean = np.stack([part.mean for part in parts]).astype(np.float32)
    factor = np.stack([part.factor for part in parts]).astype(np.float32)
    known = [part.epistemic for part in parts if part.epistemic is not None]
    epistemic = np.stack(known) if len(known) == len(parts) else None
    cost = (float(np.mean([part.training for part in parts])), float(np.mean([part.predicting for part in parts])))
    factors = {rows[-1]: factor}
    if len(rows) > 1 and tasks.targets > 1:
        factors = {rows[0]: others.without_correlations(factor), **factors}
    failures = [part.failure or "" for part in parts]
    return [Row(name, Forecast(gaussians(mean, own), epistemic), *cost, 0.0, failures) for name, own in factors.items()]


def _method(what: str, rows: tuple[str, ...], run: Callable[..., list[Row]], neural: bool, **limits: int) -> Method:
    return Method(what, rows, neural, functools.partial(run, rows), **limits)


def _of_networks(kind: str, single: bool = False) -> Callable[..., list[Row]]:
    return lambda rows, tasks, recipe: _networks(kind, rows, single, tasks, recipe)


def _of_others(fit: Callable[..., Any]) -> Callable[..., list[Row]]:
    return lambda rows, tasks, recipe: _others(fit, rows, tasks, recipe)


ENSEMBLE, CALIBRATED = "NIW ensemble", "NIW ensemble, calibrated"
METHODS = {
    "niw": _method("coupled NIW (this library)", ("one NIW network", ENSEMBLE), _of_networks("niw"), True),
    "niw-calibrated": _method(
        "the same, calibrated on 15 % of the training rows",
        ("one NIW network, calibrated", CALIBRATED),
        _calibrated,
        True,
    ),
    "niw-diagonal": _method(
        "the same with diagonal L",
        ("one diagonal NIW network", "diagonal NIW ensemble"),
        _of_networks("niw-diagonal"),
        True,
    ),
    "nig": _method(
        "NIG of each target, λ = 0.01 (Amini et al. 2020)",
        ("NIG network", "NIG network, read as Meinert 2023"),
        _of_networks("nig", single=True),
        True,
    ),
    "gaussian": _method("deep ensemble, full covariance", ("Gaussian ensemble",), _of_networks("gaussian"), True),
    "gaussian-diagonal": _method(
        "deep ensemble, diagonal covariance (Lakshminarayanan et al. 2017)",
        ("diagonal Gaussian ensemble",),
        _of_networks("gaussian-diagonal"),
        True,
    ),
    "dropout": _method(
        "MC dropout with a Gaussian of full covariance (Gal and Ghahramani 2016, Kendall and Gal 2017)",
        ("MC dropout",),
        _of_networks("dropout", single=True),
        True,
    ),
    "ngboost": _method(
        "multivariate NGBoost (Duan et al. 2020)",
        ("NGBoost",),
        _of_others(others.boosting),
        False,
        most_targets=3,
        most_splits=3,
    ),
    "process": _method(
        "a Gaussian process of each target (scikit-learn)",
        ("Gaussian process",),
        _of_others(others.process),
        False,
        most_rows=others.MOST_ROWS_OF_PROCESS,
    ),
    "ridge": _method(
        "ridge regression, constant covariance", ("ridge, diagonal", "ridge"), _of_others(others.ridge), False
    ),
    "trees": _method(
        "ExtraTrees, constant covariance", ("ExtraTrees, diagonal", "ExtraTrees"), _of_others(others.trees), False
    ),
}
