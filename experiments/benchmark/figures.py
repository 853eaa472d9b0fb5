"""The figures of the benchmark."""

from typing import Any

import numpy as np

from experiments.benchmark import statistics
from experiments.benchmark.comparisons import Difference
from experiments.benchmark.methods import ENSEMBLE, METHODS
from experiments.benchmark.problems import NEVER_USED, group
from experiments.benchmark.scores import COVERAGES
from experiments.benchmark.statistics import Saved
from experiments.harness.figures import new_figure, size_axis

_NEVER = " Never used: defaults were chosen on other tables."
CAPTIONS = {
    "joint": "Joint NLL of every method minus that of the NIW ensemble, with 95 % intervals over splits (corrected for "
    "overlapping training parts): right of 0 is worse than this library. Open: not a network." + _NEVER,
    "regions": "Fraction of the test rows inside the 50 % and 90 % joint regions, all splits together." + _NEVER,
    "univariate": "NLL of part A minus the published one of Deep Ensembles (2017), with 95 % intervals as if splits "
    "were independent." + _NEVER,
    "epistemic": "How well epistemic uncertainty separates rows unlike the training data from others (area under "
    "the ROC curve, ½ is a guess), and how it falls as the training part grows." + _NEVER,
}
METHOD_OF = {row.label: name for name, method in METHODS.items() for row in method.rows}
COLOURS = {"niw": "C0", "niw-calibrated": "C0", "niw-diagonal": "C0", "nig": "C1"}  # others by what they are


def plot(results: Saved) -> dict[str, Any]:
    """Differences in joint NLL, coverage, part A against published numbers, and epistemic uncertainty."""
    problems = statistics.problems_of(results)
    made = {"joint": joint, "regions": regions, "univariate": univariate, "epistemic": epistemic}
    found = {name: draw(problems) for name, draw in made.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _shown(name: str, table: str) -> str:
    """The name of a problem as it is shown; captions say what is meant."""
    return f"{name} (never used)" if group(table) == NEVER_USED else name


def _point(axes: Any, found: Difference, place: float, **style: Any) -> None:
    if np.isfinite(found.mean):
        ends = [[found.mean - found.low], [found.high - found.mean]]
        axes.errorbar(found.mean, place, xerr=ends if np.isfinite(ends).all() else None, fmt="o", **style)


def joint(problems: list[Saved]) -> Any:
    """Differences in joint NLL to the NIW ensemble, a panel for each table."""
    tables = statistics.joint(problems)
    labels = statistics.labels_of(tables.values(), repeated=False)
    if len(labels) < 2:
        return None
    width = max(2.3, 5.5 / len(tables))  # names of methods and titles need some room
    figure, panels = new_figure(len(tables), width, 0.26 * len(labels) + 1.2, sharey=True, squeeze=False)
    for axes, (table, problem) in zip(panels[0], tables.items(), strict=True):
        axes.axvline(0, color="k", lw=0.8)
        for place, label in enumerate(labels):
            if label in problem["rows"] and label != ENSEMBLE:
                neural = METHODS[METHOD_OF[label]].neural
                style = {"color": COLOURS.get(METHOD_OF[label], "C2" if neural else "0.4")}
                style |= {} if neural else {"markerfacecolor": "white"}
                _point(axes, statistics.difference(problem, label), place, markersize=4, lw=1.2, **style)
        axes.plot(0, labels.index(ENSEMBLE), "o", color="C0", markersize=5)
        axes.set(title=_shown(table, table))
        _difference_axis(axes)
    panels[0, 0].set_yticks(range(len(labels)), labels)
    panels[0, 0].invert_yaxis()
    figure.supxlabel("joint NLL − that of the NIW ensemble (linear up to ±0.1, logarithmic beyond)", fontsize="medium")
    return figure


def _difference_axis(axes: Any) -> None:
    """Linear up to 0.1, logarithmic beyond, with ticks that do not touch."""
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    low, high = axes.get_xlim()
    ticks = [-1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3] if high - low < 1.5 else [-1, 0, 0.1, 1, 3, 10]
    ticks = ticks if high > 0.5 or low < -0.5 else [-0.1, -0.05, 0, 0.05, 0.1, 0.2]
    ticks = ticks if high < 1000 else [-1e6, 0, 100, 1e6]
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_xticks(shown, [f"{tick:g}".replace("-", "−").replace("e+0", "e") for tick in shown])
    axes.minorticks_off()
    axes.grid(axis="x", lw=0.3)


def regions(problems: list[Saved]) -> Any:
    """Fraction of rows inside the joint regions, a panel for each coverage."""
    tables = statistics.joint(problems)
    labels = statistics.labels_of(tables.values(), repeated=False)
    if not tables:
        return None
    figure, panels = new_figure(2, 3.6, 0.26 * len(labels) + 1.2, sharey=True)
    for axes, coverage in zip(panels, COVERAGES, strict=True):
        axes.axvline(coverage, color="k", lw=0.8)
        for number, (table, problem) in enumerate(tables.items()):
            rows, key = problem["rows"], f"inside_{coverage:.0%}"
            fractions = [np.mean(rows[label][key]) if label in rows else np.nan for label in labels]
            style = {"color": f"C{number}", "markersize": 4, "alpha": 0.8, "label": _shown(table, table)}
            axes.plot(fractions, range(len(labels)), "os^DvP"[number % 6], **style)
        axes.set(xlabel=f"fraction inside the {coverage:.0%} region")
        axes.grid(lw=0.3)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    return _with_legend(figure, panels[0])


def _with_legend(figure: Any, axes: Any) -> Any:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def univariate(problems: list[Saved]) -> Any:
    """NLL of part A minus that of Deep Ensembles (2017), for each number of epochs."""
    found = {epochs: tables for epochs in (40, 400) if (tables := statistics.univariate(problems, epochs))}
    if not found:
        return None
    present = statistics.labels_of((problem for problem in problems if problem["part"] == "A"), repeated=False)
    labels = [label for label in present if METHODS[METHOD_OF[label]].neural]
    figure, panels = new_figure(len(found), 4.2, 4.2, sharey=True, squeeze=False)
    for axes, (epochs, tables) in zip(panels[0], found.items(), strict=True):
        axes.axvline(0, color="k", lw=0.8)
        for place, rows in enumerate(tables.values()):
            for number, label in enumerate(labels):
                if label in rows:
                    style = {"color": f"C{number}", "markersize": 3, "lw": 1, "label": None if place else label}
                    _point(axes, rows[label], place + _shift(number, labels, 0.13), **style)
        axes.set(title=f"{epochs} epochs", xlabel="NLL − Deep Ensembles 2017")
        _difference_axis(axes)
        axes.set_yticks(range(len(tables)), [_shown(table, table) for table in tables])
    panels[0, 0].invert_yaxis()
    return _with_legend(figure, panels[0, 0])


def _shift(number: int, labels: list[str], step: float) -> float:
    """The offset of a row from the others at one place."""
    return (number - (len(labels) - 1) / 2) * step


def epistemic(problems: list[Saved]) -> Any:
    """Areas under ROC curves, and epistemic variance against the number of training rows."""
    unlike = [problem for problem in problems if any("auroc" in row for row in problem["rows"].values())]
    if not unlike:
        return None
    growing, labels = statistics.grown(problems), statistics.labels_of(unlike)
    figure, panels = new_figure(1 + len(growing), 3.9, 3.4, squeeze=False)
    axes = panels[0, 0]
    for number, label in enumerate(labels):
        areas = {place: p["rows"][label]["auroc"] for place, p in enumerate(unlike) if label in p["rows"]}
        places = [place + _shift(number, labels, 0.12) for place in areas]
        means, spreads = ([of(values) for values in areas.values()] for of in (np.mean, np.std))
        axes.errorbar(places, means, yerr=spreads, fmt="o", color=f"C{number}", markersize=3.5, lw=1, label=label)
    axes.axhline(0.5, color="k", lw=0.8)
    names = [_shown(problem["name"], problem["table"]) for problem in unlike]
    axes.set_xticks(range(len(unlike)), [name.replace(", ", "\n").replace(" (", "\n(") for name in names])
    axes.set(ylabel="AUROC, out against in", ylim=(0, 1.03))
    for axes, (table, own) in zip(panels[0, 1:], growing.items(), strict=True):
        sizes = [problem["training_rows"] for problem in own]
        for number, label in enumerate(labels):
            if all(label in problem["rows"] for problem in own):
                values = np.array(statistics.epistemic_of(own, label))
                axes.plot(sizes, values / values[0], "o-", color=f"C{number}", markersize=3.5)
        axes.set(title=_shown(table, table), ylabel="epistemic variance, relative", yscale="log")
        size_axis(axes, sizes, "training rows")
    return _with_legend(figure, panels[0, 0])
