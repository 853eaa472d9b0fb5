"""The tables that the benchmark prints, and those that the documents show."""

import collections
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments._bench_compare import against_published, paired, published, standard_error
from experiments._bench_methods import ENSEMBLE, METHODS
from experiments._bench_problems import GROUPS, NEVER_USED, group


def text(results: dict[str, Any]) -> str:
    """All parts."""
    problems = results["problems"].values()
    lines = [f"MISSING, not run: {message}" for message in results["missing"].values()]
    lines += [f"{results['splits']} splits. {COSTS}"]
    for part, tell in (("A", _univariate), ("B", _joint), ("C", _truth), ("D", _epistemic)):
        own = [problem for problem in problems if problem["part"] == part and " of the rows" not in problem["name"]]
        if own:
            lines += ["", *tell(own)]
    lines += ["", *_growth(results)]
    return "\n".join([*lines, "", *_troubles(results)])


def mean_and_error(values: Any) -> str:
    """As it is printed everywhere."""
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"


COSTS = (
    "Seconds of training are those of one split on one core, for networks at all learning rates of which one is\n"
    "chosen; compiling is that of all splits together. ± is the standard error as if splits did not overlap, which is\n"
    "too small; differences to the NIW ensemble are corrected for that, those to published numbers are not."
)


def _header(problem: dict[str, Any]) -> str:
    recipe = problem["recipe"]
    widths = " and ".join(map(str, recipe["widths"]))
    return (
        f"{problem['name']}: {problem['training_rows']} rows to learn from, {problem['test_rows']} to be scored on, "
        f"{problem['inputs']} inputs, {problem['targets']} targets; networks of {widths} units, "
        f"{recipe['epochs']} epochs, ensembles of {recipe['members']}; {group(problem['name'])}"
    )


def chosen_rates(problem: dict[str, Any]) -> dict[str, str]:
    """Which learning rate how many splits have chosen, by method: "0.01 (18), 0.003 (2)"."""
    own = {row["method"]: row["rates"] for row in problem["rows"].values() if "rates" in row}
    counts = {method: collections.Counter(rates).most_common() for method, rates in own.items()}
    return {method: ", ".join(f"{rate:g} ({count})" for rate, count in of) for method, of in counts.items()}


def _rates(problem: dict[str, Any]) -> Iterator[str]:
    told = "; ".join(f"{method} {rates}" for method, rates in chosen_rates(problem).items())
    if told:
        yield f"  learning rates chosen, and by how many splits: {told}"


def _cost(row: dict[str, Any], test_rows: int) -> str:
    return f"{row['training']:9.2f}{row['compiling']:9.1f}{1e6 * row['predicting'] / test_rows:9.1f}"


# The reading changes what is called epistemic, not the forecast: such rows are shown in part D alone.
EQUAL_ELSEWHERE = {"NIG network, read as Meinert 2023"}
ORDER = [row for method in METHODS.values() for row in method.rows]
COST = f"{'train s':>9}{'compile':>9}{'µs/row':>9}"


def _shown(problem: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, row) for name, row in problem["rows"].items() if name not in EQUAL_ELSEWHERE]


def _univariate(problems: list[dict[str, Any]]) -> Iterator[str]:
    yield "A. One target, in its own unit: mean ± standard error over splits; published NLL on the same splits: only"
    yield "   its mean and error are known, so intervals of differences to it take splits for independent"
    for problem in problems:
        yield "\n" + _header(problem)
        yield f"  {'':36}{'NLL':>17}{'rmse':>17}{'to Deep Ensembles 2017':>29}" + COST
        known = published(problem["name"].split(",")[0])
        for name, row in _shown(problem):
            difference = str(against_published(row["nll_in_units"], *known["Deep Ensembles 2017"])) if known else ""
            yield (
                f"  {name:36}{mean_and_error(row['nll_in_units']):>17}{mean_and_error(row['rmse_in_units']):>17}"
                f"{difference:>29}" + _cost(row, problem["test_rows"])
            )
        found = ", ".join(f"{source} {mean:.2f} ± {error:.2f}" for source, (mean, error, _) in known.items())
        yield f"  published: {found or 'nothing'}"
        yield from _rates(problem)


def _joint(problems: list[dict[str, Any]]) -> Iterator[str]:
    yield "B. Several targets at once, standardised: joint NLL, energy score, rmse, joint regions (share inside; volume"
    yield "   to the power 1/targets, geometric mean over rows), and joint NLL minus that of the NIW ensemble"
    for problem in problems:
        yield "\n" + _header(problem)
        yield (
            f"  {'':36}{'NLL':>17}{'energy':>8}{'rmse':>8}{'in 50 %':>9}{'in 90 %':>9}{'size 90':>9}"
            f"{'NLL to NIW ensemble':>29}{'p':>9}" + COST
        )
        for name, row in _shown(problem):
            size = math.exp(np.mean(row["log_volume_90%"]) / problem["targets"])
            yield (
                f"  {name:36}{mean_and_error(row['nll']):>17}{np.mean(row['energy']):8.3f}{np.mean(row['rmse']):8.3f}"
                f"{np.mean(row['inside_50%']):9.1%}{np.mean(row['inside_90%']):9.1%}{size:9.3g}"
                f"{_to_ensemble(problem, name):>38}" + _cost(row, problem["test_rows"])
            )
        yield from _rates(problem)


def difference(problem: dict[str, Any], name: str, other: str = ENSEMBLE) -> Any:
    """NLL of a row minus that of another."""
    ours, theirs = problem["rows"][name]["nll"], problem["rows"][other]["nll"]
    return paired(ours, theirs, problem["training_rows"], problem["test_rows"])


def _to_ensemble(problem: dict[str, Any], name: str) -> str:
    if name == ENSEMBLE or ENSEMBLE not in problem["rows"]:
        return ""
    found = difference(problem, name)
    return f"{found!s:>29}{found.p:>9.2g}"


def _truth(problems: list[dict[str, Any]]) -> Iterator[str]:
    yield "C. Known truth: joint NLL above that of the true distribution, and root mean square errors of predicted"
    yield "   standard deviations (relative) and correlations"
    for problem in problems:
        yield "\n" + _header(problem)
        yield f"  {'':36}{'NLL above truth':>17}{'std':>9}{'corr':>9}" + COST
        for name, row in _shown(problem):
            above = "" if "oracle" not in row else mean_and_error(np.subtract(row["nll_in_units"], row["oracle"]))
            yield (
                f"  {name:36}{above:>17}{np.mean(row['std_error']):9.3f}{np.mean(row['correlation_error']):9.3f}"
                + _cost(row, problem["test_rows"])
            )
        yield from _rates(problem)


def _epistemic(problems: list[dict[str, Any]]) -> Iterator[str]:
    yield "D. Epistemic uncertainty: area under the ROC curve of telling rows out from rows in (by the epistemic part;"
    yield "   by total variance), area between sparsification curve and oracle, joint NLL in and out"
    for problem in problems:
        yield "\n" + _header(problem)
        yield f"  {'':36}{'AUROC':>17}{'by total':>10}{'AUSE':>9}{'NLL in':>10}{'NLL out':>12}" + COST
        for name, row in problem["rows"].items():
            yield (
                f"  {name:36}{mean_and_error(row['auroc']):>17}{np.mean(row['auroc_total']):10.3f}"
                f"{np.mean(row['ause']):9.3f}{np.mean(row['nll_in']):10.3f}{np.mean(row['nll_out']):12.5g}"
                + _cost(row, problem["test_rows"])
            )
        yield from _rates(problem)


def grown(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By table, the problems on which training parts grow, smallest first; the last is that of part B."""
    problems = results["problems"].values()
    found: dict[str, list[dict[str, Any]]] = {}
    for problem in sorted(problems, key=lambda p: p["training_rows"]):
        table = problem["name"].split(",")[0]
        if " of the rows" in problem["name"] or (problem["part"] == "B" and table in found):
            found.setdefault(table, []).append(problem)
    return {table: own for table, own in found.items() if own[-1]["part"] == "B"}


def epistemic_of(own: list[dict[str, Any]], name: str) -> list[float]:
    """Of each problem the mean over splits of the median over test rows of the epistemic variance of a row.

    The splits are those that all problems have.
    """
    values = [problem["rows"][name]["epistemic"] for problem in own]
    splits = min(map(len, values))
    return [float(np.mean(of[:splits])) for of in values]


def _growth(results: dict[str, Any]) -> Iterator[str]:
    for table, own in grown(results).items():
        rows = [problem["training_rows"] for problem in own]
        yield f"\n{table}: epistemic variance (Meinert 2023: 1/κ) after training on {rows} rows, the median over test"
        yield "rows, mean over the splits that all have"
        for name in own[0]["rows"]:
            if all(name in problem["rows"] for problem in own):
                yield f"  {name:36}" + "".join(f"{value:12.3g}" for value in epistemic_of(own, name))


def joint_table(results: dict[str, Any]) -> str:
    """Joint NLL of all methods on the tables of part B, as a table of Markdown; * is worse than the NIW ensemble.

    That is where the 95 % interval of the difference lies above 0; ° where it lies below.
    """
    problems = _of_part(results, "B")
    names = dict.fromkeys(name for problem in problems for name, _ in _shown(problem))
    lines = [["joint NLL", *(marked(problem["name"]) for problem in problems)]]
    for name in sorted(names, key=lambda name: ORDER.index(name)):
        cells = [_cell(problem, name) if name in problem["rows"] else "" for problem in problems]
        lines.append([f"**{name}**" if name == ENSEMBLE else name, *cells])
    return markdown(lines)


def marked(name: str) -> str:
    """The name of a problem, and that it was never used to choose anything if it was not."""
    return f"{name}, {NEVER_USED}" if group(name) == NEVER_USED else name


def markdown(lines: list[list[str]]) -> str:
    """A table, its header first; every number in it is rounded once, from the results."""
    whole = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "".join("| " + " | ".join(line) + " |\n" for line in whole)


def _of_part(results: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """The problems of a part, those of tables that were never used last."""
    own = [problem for problem in results["problems"].values() if problem["part"] == part]
    return sorted(own, key=lambda problem: GROUPS.index(group(problem["name"])))


def univariate_table(results: dict[str, Any]) -> str:
    """NLL of part A in the unit of the target, of ensembles and as published, as a table of Markdown."""
    by_epochs: dict[int, dict[str, Any]] = {}
    for problem in _of_part(results, "A"):
        table, epochs = problem["name"].split(", ")
        by_epochs.setdefault(int(epochs.split()[0]), {})[table] = problem["rows"]
    lengths = sorted(by_epochs)
    kinds = {"NIW": ENSEMBLE, "Gaussian": "Gaussian ensemble"}
    header = [f"{kind}, {epochs} epochs" for epochs in lengths for kind in kinds]
    lines = [["NLL", *header[:2], "Deep Ensembles 2017, 40 epochs", *header[2:]]]
    tables = dict.fromkeys(table for epochs in lengths for table in by_epochs[epochs])
    for table in sorted(tables, key=lambda table: (GROUPS.index(group(table)), table)):
        own = [_in_unit(by_epochs[epochs].get(table, {}), kind) for epochs in lengths for kind in kinds.values()]
        mean, error, _ = published(table)["Deep Ensembles 2017"]
        lines.append([marked(table), *own[:2], _rounded(mean, error), *own[2:]])
    return markdown(lines)


def _in_unit(rows: dict[str, Any], name: str) -> str:
    return _over_splits(rows[name]["nll_in_units"]) if name in rows else ""


def _over_splits(values: Any) -> str:
    return _rounded(float(np.mean(values)), standard_error(values))


def _rounded(mean: float, error: float) -> str:
    if not math.isfinite(mean):
        return "not finite"
    form = ".2f" if abs(mean) < 1000 else ".1e"
    return f"{mean:{form}} ± {error:{form}}".replace("-", "−")


def rates_table(results: dict[str, Any]) -> str:
    """How many splits of the tables of part B have chosen which learning rate, as a table of Markdown."""
    problems = _of_part(results, "B")
    found = [chosen_rates(problem) for problem in problems]
    methods = [name for name in METHODS if any(name in of for of in found)]
    lines = [["learning rate (splits)", *(marked(problem["name"]) for problem in problems)]]
    return markdown([*lines, *([METHODS[name].rows[-1], *(of.get(name, "") for of in found)] for name in methods)])


def _cell(problem: dict[str, Any], name: str) -> str:
    mark = ""
    if name != ENSEMBLE and ENSEMBLE in problem["rows"]:
        found = difference(problem, name)
        mark = "" if found.tied else " *" if found.mean > 0 else " °"
    return _over_splits(problem["rows"][name]["nll"]) + mark


def _troubles(results: dict[str, Any]) -> Iterator[str]:
    """Whatever is not a plain number: rows that are not finite, splits that failed, methods left out."""
    count = 0
    for problem in results["problems"].values():
        for name, row in problem["rows"].items():
            failed = [message for message in row["failures"] if message]
            broken, no_region = sum(row["broken"]), sum(row.get("no_region", ()))
            count += bool(failed or broken or no_region)
            if failed or broken or no_region:
                said = f"{broken} rows with a non-finite NLL, {no_region} without a joint region"
                said += f"; {failed[0]}" if failed else ""
                yield f"{problem['part']} {problem['name']}, {name}: {len(failed)} splits with a failure, {said}"
        for name, why in problem["left_out"].items():
            yield f"{problem['part']} {problem['name']}: {name} left out, {why}"
    yield f"{count} rows of these tables with failures or non-finite scores"
