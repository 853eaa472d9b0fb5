"""All methods through one interface: `run` gives one or more rows of the table, each with a forecast and its cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np

import mder_jax as mder
from experiments.benchmark import baselines, networks
from experiments.benchmark.networks import Recipe, Trained, take
from experiments.benchmark.scores import Forecast, gaussians
from experiments.benchmark.splits import TableTasks, Tasks, set_apart


@dataclass(frozen=True)
class Row:
    """A row of the table: its label, which is its key in saved results, and how it is made of a fitted method."""

    label: str
    members: Literal["one", "all"] = "all"  # "one": only the first network of an ensemble
    epistemic: Literal["usual", "meinert2023"] = "usual"  # "meinert2023": 1/κ, not the trace of the covariance
    correlations: bool = True  # False for the variances of a baseline alone


class Result(NamedTuple):
    """A row with its forecast, its cost for each split in seconds, and what went wrong."""

    row: Row
    forecast: Forecast
    training: float
    predicting: float
    compiling: float
    failures: list[str]  # one for each split; empty if nothing failed
    rates: list[float] | None = None  # learning rates that the splits have chosen, if it is made of networks


@dataclass(frozen=True, kw_only=True)
class Method:
    """The rows that it gives, in order, and how many training rows, targets and splits it is run on at most."""

    rows: tuple[Row, ...]
    most_rows: int | None = None
    most_targets: int | None = None
    most_splits: int | None = None
    neural: ClassVar[bool]

    def left_out(self, tasks: Tasks | TableTasks) -> str:
        """Why it is not run on these tasks; empty if it is."""
        if self.most_rows and tasks.training_rows > self.most_rows:
            return f"more than {self.most_rows} training rows"
        if self.most_targets and tasks.targets > self.most_targets:
            return f"more than {self.most_targets} targets"
        return ""

    def run(self, tasks: Any, recipe: Any) -> list[Result]:
        """Fit all splits, and predict their test rows."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Networks(Method):
    """Networks of a kind, an ensemble for each split or a single one; maybe with rows set apart for calibration."""

    kind: str
    single: bool = False
    calibrated: bool = False
    neural = True

    def run(self, tasks: Tasks, recipe: Recipe) -> list[Result]:
        """All splits in one program; the rows differ in what they read off its networks."""
        part, X, Y = set_apart(tasks, networks.CALIBRATION_FRACTION if self.calibrated else 0.0)
        trained = networks.fit(networks.KINDS[self.kind], part, recipe, 1 if self.single else recipe.members)
        found, predicting = networks.outputs(trained, tasks.X_test)
        if not self.calibrated:
            return [_result(row, trained, predicting, _forecast(row, found)) for row in self.rows]
        both, made = (found, networks.outputs(trained, X)[0]), []
        for row in self.rows:
            of_test, of_apart = (_repeated(_members(row, every), recipe.members) for every in both)
            made.append(_result(row, trained, predicting, *networks.calibrated(of_test, of_apart, Y)))
        return made


def _members(row: Row, found: Any) -> Any:
    """The networks that a row is made of, from (S, M, ...)."""
    return take(found, np.s_[:, :1]) if row.members == "one" else found


def _forecast(row: Row, found: Any) -> Forecast:
    """What a row reads off the networks' outputs, (S, M, K, ...)."""
    epistemic = np.mean(1 / found.kappa[:, 0], axis=-1) if row.epistemic == "meinert2023" else None
    return Forecast(take(found, np.s_[:, 0]) if isinstance(found, mder.NIG) else _members(row, found), epistemic)


def _repeated(members: Any, count: int) -> Any:
    """One member as `count` equal ones, which are the same mixture: one compiled program serves both."""
    return jax.tree.map(lambda leaf: leaf if leaf.shape[1] == count else np.repeat(leaf, count, axis=1), members)


def _result(row: Row, trained: Trained, predicting: float, forecast: Forecast, more: Sequence[str] = ()) -> Result:
    """A row of networks; one of them alone has its part of the time, in which its rate was chosen, too."""
    splits, members = jax.tree.leaves(trained.params)[0].shape[:2]
    parts = splits * members if row.members == "one" else splits
    diverged = [f"{count} networks became non-finite" if count else "" for count in trained.diverged]
    failures = ["; ".join(filter(None, both)) for both in zip(diverged, more or [""] * splits, strict=True)]
    cost = (trained.seconds / parts, predicting / parts, trained.compiling)
    return Result(row, forecast, *cost, failures, trained.rates.tolist())


@dataclass(frozen=True, kw_only=True)
class Baseline(Method):
    """A method that is fitted split by split."""

    fit: Callable[[np.ndarray, np.ndarray], baselines.Fitted]
    neural = False

    def run(self, tasks: Tasks, recipe: Recipe) -> list[Result]:
        """A row without correlations is left out where there is one target."""
        parts = baselines.each_split(self.fit, tasks)
        mean, factor, known, training, predicting, failures = map(list, zip(*parts, strict=True))
        loc, full = (np.stack(values).astype(np.float32) for values in (mean, factor))
        epistemic = None if any(values is None for values in known) else np.stack(known)
        cost = (float(np.mean(training)), float(np.mean(predicting)), 0.0)
        factors = {True: full, False: baselines.without_correlations(full)}
        return [
            Result(row, Forecast(gaussians(loc, factors[row.correlations]), epistemic), *cost, failures)
            for row in self.rows
            if row.correlations or tasks.targets > 1
        ]


ENSEMBLE, CALIBRATED = "NIW ensemble", "NIW ensemble, calibrated"
METHODS: dict[str, Method] = {
    "niw": Networks(kind="niw", rows=(Row("one NIW network", members="one"), Row(ENSEMBLE))),  # this library
    "niw-calibrated": Networks(  # the same, calibrated on some of the training rows
        kind="niw", rows=(Row("one NIW network, calibrated", members="one"), Row(CALIBRATED)), calibrated=True
    ),
    "niw-diagonal": Networks(  # the same with diagonal L
        kind="niw-diagonal", rows=(Row("one diagonal NIW network", members="one"), Row("diagonal NIW ensemble"))
    ),
    "nig": Networks(  # of each target (Amini et al. 2020)
        kind="nig",
        rows=(Row("NIG network"), Row("NIG network, read as Meinert 2023", epistemic="meinert2023")),
        single=True,
    ),
    # Deep ensembles, and those of Lakshminarayanan et al. 2017
    "gaussian": Networks(kind="gaussian", rows=(Row("Gaussian ensemble"),)),
    "gaussian-diagonal": Networks(kind="gaussian-diagonal", rows=(Row("diagonal Gaussian ensemble"),)),
    # With a Gaussian of full covariance (Gal and Ghahramani 2016, Kendall and Gal 2017)
    "dropout": Networks(kind="dropout", rows=(Row("MC dropout"),), single=True),
    # Duan et al. 2020
    "ngboost": Baseline(fit=baselines.boosting, rows=(Row("NGBoost"),), most_targets=3, most_splits=3),
    # One of scikit-learn for each target
    "process": Baseline(
        fit=baselines.process, rows=(Row("Gaussian process"),), most_rows=baselines.MOST_ROWS_OF_PROCESS
    ),
    # Constant covariances
    "ridge": Baseline(fit=baselines.ridge, rows=(Row("ridge, diagonal", correlations=False), Row("ridge"))),
    "trees": Baseline(fit=baselines.trees, rows=(Row("ExtraTrees, diagonal", correlations=False), Row("ExtraTrees"))),
}
ROWS = {row.label: row for method in METHODS.values() for row in method.rows}
