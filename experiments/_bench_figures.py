"""The figures of the benchmark."""

from typing import Any

import numpy as np

from experiments._bench_goals import joint as joint_problems, univariate as univariate_differences
from experiments._bench_methods import ENSEMBLE, METHODS
from experiments._bench_problems import NEVER_USED, group
from experiments._bench_report import EQUAL_ELSEWHERE, ORDER, difference, epistemic_of, grown
from experiments._figures import new_figure


def _rows_of(problems: Any) -> list[str]:
    """Names of rows that any of the problems has, in the order of the methods."""
    names = {name for problem in problems for name in problem["rows"]} - EQUAL_ELSEWHERE
    return [name for name in ORDER if name in names]


def _marked(name: str) -> str:
    """The name of a table as it is shown; captions say what is meant."""
    return f"{name} (never used)" if group(name) == NEVER_USED else name


def _colour(name: str) -> str:
    return "C0" if "NIW" in name else "C1" if "NIG" in name else "C2" if name in _NETWORKS else "0.4"


_NETWORKS = {row for method in METHODS.values() if method.neural for row in method.rows}


def joint(results: dict[str, Any]) -> Any:
    """Differences in joint NLL to the NIW ensemble, a panel for each table."""
    problems = joint_problems(results)
    names = _rows_of(problems.values())
    if len(names) < 2:
        return None
    width = max(2.3, 5.5 / len(problems))  # names of methods and titles need some room
    figure, panels = new_figure(len(problems), width, 0.26 * len(names) + 1.2, sharey=True, squeeze=False)
    for axes, (table, problem) in zip(panels[0], problems.items(), strict=True):
        axes.axvline(0, color="k", lw=0.8)
        for place, name in enumerate(names):
            if name in problem["rows"] and name != ENSEMBLE:
                _point(axes, difference(problem, name), place, name)
        axes.plot(0, names.index(ENSEMBLE), "o", color="C0", markersize=5)
        axes.set(title=_marked(table))
        _difference_axis(axes)
    panels[0, 0].set_yticks(range(len(names)), names)
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


def _point(axes: Any, found: Any, place: int, name: str) -> None:
    if np.isfinite(found.mean):
        ends = [[found.mean - found.low], [found.high - found.mean]]
        bars = ends if np.isfinite(ends).all() else None
        filled = {} if name in _NETWORKS else {"markerfacecolor": "white"}
        axes.errorbar(found.mean, place, xerr=bars, fmt="o", color=_colour(name), markersize=4, lw=1.2, **filled)


def regions(results: dict[str, Any]) -> Any:
    """Share of rows inside the joint regions, a panel for each coverage."""
    problems = joint_problems(results)
    names = _rows_of(problems.values())
    if not problems:
        return None
    figure, panels = new_figure(2, 3.6, 0.26 * len(names) + 1.2, sharey=True)
    for axes, coverage in zip(panels, (0.5, 0.9), strict=True):
        axes.axvline(coverage, color="k", lw=0.8)
        for number, (table, problem) in enumerate(problems.items()):
            shares = [
                np.mean(problem["rows"][name][f"inside_{coverage:.0%}"]) if name in problem["rows"] else np.nan
                for name in names
            ]
            axes.plot(
                shares,
                range(len(names)),
                "os^DvP"[number % 6],
                color=f"C{number}",
                markersize=4,
                label=_marked(table),
                alpha=0.8,
            )
        axes.set(xlabel=f"share inside the {coverage:.0%} region")
        axes.grid(lw=0.3)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def univariate(results: dict[str, Any]) -> Any:
    """NLL of part A minus that of Deep Ensembles (2017), for each number of epochs."""
    found = {epochs: univariate_differences(results, epochs) for epochs in (40, 400)}
    found = {epochs: of for epochs, of in found.items() if of}
    if not found:
        return None
    names = [name for name in ORDER if any(name in rows for of in found.values() for rows in of.values())]
    names = [name for name in names if name in _NETWORKS - EQUAL_ELSEWHERE]
    figure, panels = new_figure(len(found), 4.2, 4.2, sharey=True, squeeze=False)
    for axes, (epochs, tables) in zip(panels[0], found.items(), strict=True):
        axes.axvline(0, color="k", lw=0.8)
        for place, rows in enumerate(tables.values()):
            for number, name in enumerate(names):
                if name in rows:
                    shift = (number - (len(names) - 1) / 2) * 0.13
                    ends = [[rows[name].mean - rows[name].low], [rows[name].high - rows[name].mean]]
                    label = name if place == 0 else None
                    axes.errorbar(
                        rows[name].mean,
                        place + shift,
                        xerr=ends,
                        fmt="o",
                        color=f"C{number}",
                        markersize=3,
                        lw=1,
                        label=label,
                    )
        axes.set(title=f"{epochs} epochs", xlabel="NLL − Deep Ensembles 2017")
        _difference_axis(axes)
        axes.set_yticks(range(len(tables)), [_marked(table) for table in tables])
    panels[0, 0].invert_yaxis()
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def epistemic(results: dict[str, Any]) -> Any:
    """Areas under ROC curves, and epistemic variance against the number of training rows."""
    told = [p for p in results["problems"].values() if any("auroc" in row for row in p["rows"].values())]
    growing = grown(results)
    if not told:
        return None
    names = [name for name in ORDER if any(name in problem["rows"] for problem in told)]
    figure, panels = new_figure(1 + len(growing), 3.9, 3.4, squeeze=False)
    axes = panels[0, 0]
    for number, name in enumerate(names):
        shift = (number - (len(names) - 1) / 2) * 0.12
        areas = {place: p["rows"][name]["auroc"] for place, p in enumerate(told) if name in p["rows"]}
        places, means = [place + shift for place in areas], [np.mean(values) for values in areas.values()]
        spreads = [np.std(values) for values in areas.values()]
        axes.errorbar(places, means, yerr=spreads, fmt="o", color=f"C{number}", markersize=3.5, lw=1, label=name)
    axes.axhline(0.5, color="k", lw=0.8)
    axes.set_xticks(range(len(told)), [_marked(p["name"]).replace(", ", "\n").replace(" (", "\n(") for p in told])
    axes.set(ylabel="AUROC, out against in", ylim=(0, 1.03))
    for axes, (table, own) in zip(panels[0, 1:], growing.items(), strict=True):
        sizes = [problem["training_rows"] for problem in own]
        for number, name in enumerate(names):
            if all(name in problem["rows"] for problem in own):
                values = np.array(epistemic_of(own, name))
                axes.plot(sizes, values / values[0], "o-", color=f"C{number}", markersize=3.5)
        axes.set(title=_marked(table), xlabel="training rows", ylabel="epistemic variance, relative")
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.minorticks_off()
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
