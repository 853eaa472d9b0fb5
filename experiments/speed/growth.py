"""How time and memory grow with networks, rows, width and targets: each size in a separate process."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from experiments.harness.figures import new_figure, size_axis
from experiments.speed.clock import in_turn, shown, spread
from experiments.speed.job import Job, in_fresh_process

GOAL = 1.3
GOAL_FROM = 10
AXES = {"members": "networks", "rows": "rows", "width": "width", "targets": "targets n"}


def measure(job: Job, sizes: dict[str, tuple[int, ...]], work: float, repeats: int) -> dict[str, Any]:
    """One axis grows at a time; `work` are the GFLOP of matrix products for which each size is trained."""
    jobs = {(axis, size): shortened(replace(job, **{axis: size}), work) for axis in sizes for size in sizes[axis]}
    runs = in_turn("growth", {key: partial(in_fresh_process, own) for key, own in jobs.items()}, repeats)
    each = {key: np.array([run["epoch_s"] for run in runs[key]]) / own.members for key, own in jobs.items()}
    best = np.min([values for (axis, _), values in each.items() if axis == "members"], axis=0, initial=np.inf)
    rows: list[dict[str, Any]] = []
    for (axis, size), own in jobs.items():
        seconds = each[axis, size]
        rows.append({"axis": axis, "size": size, "epochs": own.epochs})
        rows[-1] |= {"member_epoch_us": spread(1e6 * seconds), "member_row_ns": spread(1e9 * seconds / own.rows)}
        rows[-1] |= {"peak_mb": max(run["peak_mb"] for run in runs[axis, size])}
        rows[-1] |= {"of_best": spread(seconds / best)} if axis == "members" else {}
    return {"job": vars(job), "rows": rows}


def shortened(job: Job, work: float) -> Job:
    """The same with as many epochs as the work allows, but some."""
    fitting = int(work * 1e9 / job.flop)
    return replace(job, epochs=min(max(fitting, 5), job.epochs), batch=min(job.batch, job.rows))


def report(results: dict[str, Any]) -> str:
    """One table, and the goal."""
    job = Job(**results["job"])
    lines = [
        f"growth from {job.members} networks, {job.rows} rows, width {job.width}, {job.targets} targets: "
        "time of one network's epoch, median of rounds (range)",
        "| what grows |    size | epochs | µs, network and epoch       | ns, and row | of the best         | peak MB |",
        "|------------|--------:|-------:|-----------------------------|------------:|---------------------|--------:|",
    ]
    for row in results["rows"]:
        of_best = shown(row["of_best"], 2) if "of_best" in row else ""
        lines.append(
            f"| {AXES[row['axis']]:10} | {row['size']:7,} | {row['epochs']:6} | {shown(row['member_epoch_us']):27} "
            f"| {row['member_row_ns']['median']:11.1f} | {of_best:19} | {row['peak_mb']:7.0f} |"
        )
    members = [row for row in results["rows"] if row["axis"] == "members" and row["size"] >= GOAL_FROM]
    above = [row["size"] for row in members if row["of_best"]["median"] > GOAL]
    if members:
        what = f"time per network and epoch within {GOAL:g} of its best from {GOAL_FROM} networks on"
        lines.append(f"MISSED : {what}: not for {above}" if above else f"reached: {what}")
    return "\n".join(lines)


def plot(results: dict[str, Any]) -> Any:
    """Time, and memory in grey, against each size."""
    axes_of = [axis for axis in AXES if any(row["axis"] == axis for row in results["rows"])]
    values = [value for row in results["rows"] for value in (row["member_epoch_us"]["median"], row["peak_mb"])]
    decades = 10 ** np.floor(np.log10(min(values))), 10 ** np.ceil(np.log10(max(values)))
    figure, panels = new_figure(len(axes_of), 3.4, 3.2, squeeze=False)
    for panel, axis in zip(panels[0], axes_of, strict=True):
        rows = [row for row in results["rows"] if row["axis"] == axis]
        sizes = [row["size"] for row in rows]
        times = [row["member_epoch_us"]["median"] for row in rows]
        panel.loglog(sizes, times, marker=".", label="µs, network and epoch")
        panel.loglog(sizes, [row["peak_mb"] for row in rows], marker=".", color="0.6", label="peak memory, MB")
        size_axis(panel, sizes, AXES[axis])
        panel.set_ylim(decades)
    panels[0, 0].legend()
    return figure
