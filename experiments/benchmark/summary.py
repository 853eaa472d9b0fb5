"""The tables that the benchmark prints, and those that the documents show."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark import statistics
from experiments.benchmark.as_it_comes import OURS
from experiments.benchmark.comparisons import Difference, published, standard_error
from experiments.benchmark.methods import ENSEMBLE, METHODS
from experiments.benchmark.problems import GROUPS, NEVER_USED, group
from experiments.benchmark.statistics import Saved
from experiments.harness.report_page import markdown

COSTS = (
    "Seconds of training are those of one split on one core, for networks at all learning rates of which one is\n"
    "chosen; compiling is that of all splits together. ± is the standard error as if splits did not overlap, which is\n"
    "too small; differences to the NIW ensemble are corrected for that, those to published numbers are not."
)


def text(results: Saved) -> str:
    """All parts."""
    problems = statistics.problems_of(results)
    lines = [f"MISSING, not run: {message}" for message in results["missing"].values()]
    lines += [f"{results['splits']} splits. {COSTS}"]
    for part, layout in PARTS.items():
        own = [problem for problem in problems if problem["part"] == part and problem["fraction"] == 1]
        if own:
            lines += ["", *_printed(layout, statistics.by_group(own) if part == "E" else own)]
    return "\n".join([*lines, "", *_growth(problems), "", *_troubles(problems)])


class Layout(NamedTuple):
    """How a part is printed."""

    title: str
    header: str  # of the columns between the label of a row and its cost
    columns: Callable[[Saved, str], str]  # (problem, label) -> these columns
    notes: Callable[[Saved], Iterator[str]] = lambda problem: iter(())  # lines below a problem
    repeated: bool = False  # whether rows that are another reading of the same forecast are shown


def _printed(layout: Layout, problems: list[Saved]) -> Iterator[str]:
    yield layout.title
    for problem in problems:
        yield "\n" + _header(problem)
        yield f"  {'':36}{layout.header}{'train s':>9}{'compile':>9}{'µs/row':>9}"
        for label, row in problem["rows"].items():
            if layout.repeated or label not in statistics.REPEATED:
                cost = f"{row['training']:9.2f}{row['compiling']:9.1f}"
                cost += f"{1e6 * row['predicting'] / problem['test_rows']:9.1f}"
                yield f"  {label:36}{layout.columns(problem, label)}{cost}"
        yield from layout.notes(problem)
        rates = "; ".join(f"{method} {rates}" for method, rates in statistics.chosen_rates(problem).items())
        if rates:
            yield f"  learning rates chosen, and by how many splits: {rates}"


def _header(problem: Saved) -> str:
    return (
        f"{problem['name']}: {problem['training_rows']} rows to learn from, {problem['test_rows']} to be scored on, "
        f"{problem['inputs']} inputs, {problem['targets']} targets; {_networks(problem['recipe'])}"
        f"{group(problem['table'])}"
    )


def _networks(recipe: Saved | None) -> str:
    """Networks that all methods share; in part E there are none."""
    if recipe is None:
        return ""
    widths = " and ".join(map(str, recipe["widths"]))
    return f"networks of {widths} units, {recipe['epochs']} epochs, ensembles of {recipe['members']}; "


def _mean_and_error(values: Any) -> str:
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"


def _univariate(problem: Saved, label: str) -> str:
    row = problem["rows"][label]
    scores = f"{_mean_and_error(row['nll_in_units']):>17}{_mean_and_error(row['rmse_in_units']):>17}"
    return f"{scores}{statistics.to_rival(problem).get(label, '')!s:>29}"


def _published(problem: Saved) -> Iterator[str]:
    known = published(problem["table"])
    found = ", ".join(f"{source} {mean:.2f} ± {error:.2f}" for source, (mean, error, _) in known.items())
    yield f"  published: {found or 'nothing'}"


def _to_ensemble(problem: Saved, label: str, ours: str = ENSEMBLE) -> Difference | None:
    """Joint NLL minus that of the NIW ensemble, or of another row, for the other rows."""
    both = label != ours and ours in problem["rows"]
    return statistics.difference(problem, label, ours) if both else None


def _joint(problem: Saved, label: str) -> str:
    row = problem["rows"][label]
    size = math.exp(np.mean(row["log_volume_90%"]) / problem["targets"])
    found = _to_ensemble(problem, label)
    to_ensemble = f"{found!s:>29}{found.p:>9.2g}" if found else ""
    return (
        f"{_mean_and_error(row['nll']):>17}{np.mean(row['energy']):8.3f}{np.mean(row['rmse']):8.3f}"
        f"{np.mean(row['inside_50%']):9.1%}{np.mean(row['inside_90%']):9.1%}{size:9.3g}{to_ensemble:>38}"
    )


def _as_it_comes(problem: Saved, label: str) -> str:
    row = problem["rows"][label]
    found = _to_ensemble(problem, label, OURS)
    return (
        f"{_mean_and_error(row['nll']):>17}{_mean_and_error(row['rmse']):>17}{np.mean(row['energy']):8.3f}"
        f"{np.mean(row['inside_90%']):9.1%}{f'{found!s:>29}{found.p:>9.2g}' if found else '':>38}"
    )


def _units(problem: Saved) -> Iterator[str]:
    row = problem["rows"].get(OURS, {})
    if "nll_in_units" in row:
        scores = f"NLL {_mean_and_error(row['nll_in_units'])}, rmse {_mean_and_error(row['rmse_in_units'])}"
        yield f"  {OURS} in the unit of the target: {scores}"


def _truth(problem: Saved, label: str) -> str:
    row = problem["rows"][label]
    above = "" if "oracle" not in row else _mean_and_error(np.subtract(row["nll_in_units"], row["oracle"]))
    return f"{above:>17}{np.mean(row['std_error']):9.3f}{np.mean(row['correlation_error']):9.3f}"


def _epistemic(problem: Saved, label: str) -> str:
    row = problem["rows"][label]
    return (
        f"{_mean_and_error(row['auroc']):>17}{np.mean(row['auroc_total']):10.3f}"
        f"{np.mean(row['ause']):9.3f}{np.mean(row['nll_in']):10.3f}{np.mean(row['nll_out']):12.5g}"
    )


PARTS = {
    "A": Layout(
        "A. One target, in its own unit: mean ± standard error over splits; published NLL on the same splits: only\n"
        "   its mean and error are known, so intervals of differences to it treat splits as independent",
        f"{'NLL':>17}{'rmse':>17}{f'to {statistics.RIVAL}':>29}",
        _univariate,
        _published,
    ),
    "B": Layout(
        "B. Several targets at once, standardised: joint NLL, energy score, rmse, joint regions (fraction inside;\n"
        "   volume to the power 1/targets, geometric mean over rows), and joint NLL minus that of the NIW ensemble",
        f"{'NLL':>17}{'energy':>8}{'rmse':>8}{'in 50 %':>9}{'in 90 %':>9}{'size 90':>9}"
        f"{'NLL to NIW ensemble':>29}{'p':>9}",
        _joint,
    ),
    "C": Layout(
        "C. Known truth: joint NLL above that of the true distribution, and root mean square errors of predicted\n"
        "   standard deviations (relative) and correlations",
        f"{'NLL above truth':>17}{'std':>9}{'corr':>9}",
        _truth,
    ),
    "D": Layout(
        "D. Epistemic uncertainty: area under the ROC curve of separating rows out from rows in (by the epistemic\n"
        "   part; by total variance), area between sparsification curve and oracle, joint NLL in and out",
        f"{'AUROC':>17}{'by total':>10}{'AUSE':>9}{'NLL in':>10}{'NLL out':>12}",
        _epistemic,
        repeated=True,
    ),
    "E": Layout(
        "E. Tables as they come, each method with its authors' defaults; targets standardised: joint NLL, rmse,\n"
        f"   energy score, joint region of 90 %, and joint NLL minus that of {OURS}. Seconds are those\n"
        "   of one core at work for all that a row needs; training holds compiling, that of predictions is apart",
        f"{'NLL':>17}{'rmse':>17}{'energy':>8}{'in 90 %':>9}{f'NLL to {OURS}':>29}{'p':>9}",
        _as_it_comes,
        _units,
    ),
}


def _growth(problems: list[Saved]) -> Iterator[str]:
    for table, own in statistics.grown(problems).items():
        rows = [problem["training_rows"] for problem in own]
        yield f"\n{table}: epistemic variance (Meinert 2023: 1/κ) after training on {rows} rows, the median over test"
        yield "rows, mean over the splits that all have"
        for label in own[0]["rows"]:
            if all(label in problem["rows"] for problem in own):
                yield f"  {label:36}" + "".join(f"{value:12.3g}" for value in statistics.epistemic_of(own, label))


def _troubles(problems: list[Saved]) -> Iterator[str]:
    """Whatever is not a plain number: rows that are not finite, splits that failed, methods left out."""
    count = 0
    for problem in problems:
        where = f"{problem['part']} {problem['name']}"
        for label, row in problem["rows"].items():
            failed = [message for message in row["failures"] if message]
            broken, no_region = sum(row["broken"]), sum(row.get("no_region", ()))
            if failed or broken or no_region:
                count += 1
                said = f"{broken} rows with a non-finite NLL, {no_region} without a joint region"
                yield "; ".join([f"{where}, {label}: {len(failed)} splits with a failure, {said}", *failed[:1]])
        for method, why in problem["left_out"].items():
            yield f"{where}: {method} left out, {why}"
        for method, why in problem.get("not_installed", {}).items():
            yield f"{where}: {method} MISSING, {why}"
    yield f"{count} rows of these tables with failures or non-finite scores"


def _marked(table: str) -> str:
    """The name of a table, and that it was never used to choose anything if it was not."""
    return f"{table}, {NEVER_USED}" if group(table) == NEVER_USED else table


def joint_table(results: Saved) -> str:
    """Joint NLL of all methods on the tables of part B, as a table of Markdown; * is worse than the NIW ensemble.

    That is where the 95 % interval of the difference lies above 0; ° where it lies below.
    """
    problems = statistics.by_group(statistics.problems_of(results, "B"))
    lines = [["joint NLL", *(_marked(problem["table"]) for problem in problems)]]
    for label in statistics.labels_of(problems, repeated=False):
        cells = [_cell(problem, label) if label in problem["rows"] else "" for problem in problems]
        lines.append([f"**{label}**" if label == ENSEMBLE else label, *cells])
    return markdown(lines)


def _cell(problem: Saved, label: str) -> str:
    found = _to_ensemble(problem, label)
    mark = "" if found is None or found.tied else " *" if found.mean > 0 else " °"
    return _over_splits(problem["rows"][label]["nll"]) + mark


def univariate_table(results: Saved) -> str:
    """NLL of part A in the unit of the target, of ensembles and as published, as a table of Markdown."""
    rows = {(problem["table"], problem["epochs"]): problem["rows"] for problem in statistics.problems_of(results, "A")}
    lengths = sorted({epochs for _, epochs in rows})
    kinds = {"NIW": ENSEMBLE, "Gaussian": METHODS["gaussian"].rows[-1].label}
    columns = [(epochs, kind, label) for epochs in lengths for kind, label in kinds.items()]
    header = [f"{kind}, {epochs} epochs" for epochs, kind, _ in columns]
    lines = [["NLL", *header[:2], f"{statistics.RIVAL}, 40 epochs", *header[2:]]]
    for table in sorted({table for table, _ in rows}, key=lambda table: (GROUPS.index(group(table)), table)):
        found = [rows.get((table, epochs), {}).get(label) for epochs, _, label in columns]
        own = [_over_splits(row["nll_in_units"]) if row else "" for row in found]
        mean, error, _ = published(table)[statistics.RIVAL]
        lines.append([_marked(table), *own[:2], _rounded(mean, error), *own[2:]])
    return markdown(lines)


def _over_splits(values: Any) -> str:
    return _rounded(float(np.mean(values)), standard_error(values))


def _rounded(mean: float, error: float) -> str:
    if not math.isfinite(mean):
        return "not finite"
    form = ".2f" if abs(mean) < 1000 else ".1e"
    return f"{mean:{form}} ± {error:{form}}".replace("-", "−")


def rates_table(results: Saved) -> str:
    """How many splits of the tables of part B have chosen which learning rate, as a table of Markdown."""
    problems = statistics.by_group(statistics.problems_of(results, "B"))
    found = [statistics.chosen_rates(problem) for problem in problems]
    lines = [["learning rate (splits)", *(_marked(problem["table"]) for problem in problems)]]
    for name, method in METHODS.items():
        if any(name in rates for rates in found):
            lines.append([method.rows[-1].label, *(rates.get(name, "") for rates in found)])
    return markdown(lines)


NOT_RUN = "Not run yet.\n"


def as_it_comes_table(results: Saved) -> str:
    """Ours against the hardest rival on each table of part E, as a table of Markdown; never used ones last."""
    problems = statistics.by_group(statistics.as_it_comes(statistics.problems_of(results)))
    header = ["table", "rows", "targets", "NLL", "hardest rival", "NLL − its", "rmse", "best other", "rmse / its"]
    lines = [[*header, "train s", "RealMLP s"]]
    for problem in problems:
        nll, rmse = statistics.best_rival(problem), statistics.nearest_in_rmse(problem)
        name = problem["name"] + (f", {NEVER_USED}" if group(problem["table"]) == NEVER_USED else "")
        own, seconds = problem["rows"][OURS], statistics.seconds_of_training(problem)
        line = [name, str(problem["training_rows"]), str(problem["targets"]), _over_splits(own["nll"])]
        line += [nll.label, str(nll.difference).replace("-", "−")] if nll else ["", ""]
        line += [f"{np.mean(own['rmse']):.3f}", *([rmse.label, f"{rmse.ours / rmse.value:.3f}"] if rmse else ["", ""])]
        lines.append([*line, f"{own['training']:.1f}", f"{seconds[1]:.0f}" if seconds else ""])
    return markdown(lines) if problems else NOT_RUN
