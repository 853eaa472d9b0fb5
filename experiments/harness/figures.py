"""How figures are made: one style, lines with intervals, an axis of angles, PNG and PDF."""

import io
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.harness.statistics import interval

STYLE = pathlib.Path(__file__).with_name("paper.mplstyle")
ANGLES = [quarter * math.pi / 2 for quarter in range(5)]
ANGLE_NAMES = ["0", "π/2", "π", "3π/2", "2π"]


def new_figure(
    columns: int = 1, width: float = 5.0, height: float = 3.6, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """A figure in the project's style with rows times columns of axes; options as for ``Figure.subplots``."""
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use(STYLE)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def line_with_interval(axes: Any, x: Any, values: np.ndarray, color: str, label: str, style: str = "-") -> None:
    """Means of each row of the values with bootstrap intervals, over x."""
    middle, low, high = np.array([interval(value, np.mean) for value in values]).T
    axes.plot(x, middle, style, color=color, marker=".", label=label)
    axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def line_with_range(axes: Any, x: Any, values: np.ndarray, ends: tuple[float, float], *style: str, **look: Any) -> None:
    """Medians over the first axis with a band between two quantiles, over x."""
    low, middle, high = np.quantile(values, (ends[0], 0.5, ends[1]), axis=0)
    (line,) = axes.plot(x, middle, *style, **look)
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def points_with_range(axes: Any, x: Any, values: np.ndarray, ends: tuple[float, float], **look: Any) -> None:
    """Medians over the first axis with bars between two quantiles, at x."""
    low, middle, high = np.quantile(values, (ends[0], 0.5, ends[1]), axis=0)
    axes.errorbar(x, middle, np.reshape([middle - low, high - middle], (2, -1)), **look)


def angle_axis(axes: Any) -> None:
    """An x axis of t from 0 to 2π with ticks at multiples of π/2."""
    axes.set(xlim=(0, 2 * math.pi), xlabel="t (rad)")
    axes.set_xticks(ANGLES, ANGLE_NAMES)


def size_axis(axes: Any, sizes: Sequence[int] | np.ndarray, label: str) -> None:
    """A logarithmic x axis with ticks at these sizes only."""
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.minorticks_off()


def rendered(figure: Any) -> dict[str, bytes]:
    """The figure as PNG at 200 dpi and as PDF, laid out once."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    for axes in figure.axes:
        _few_ticks(axes)
    figure.set_dpi(200)
    png, pdf = io.BytesIO(), io.BytesIO()
    FigureCanvasAgg(figure).print_png(png, pil_kwargs={"compress_level": 3})
    figure.set_layout_engine("none")  # the layout is final
    figure.set_dpi(72)  # the unit of PDF
    FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})
    return {"png": png.getvalue(), "pdf": pdf.getvalue()}


def _few_ticks(axes: Any) -> None:
    """No minor ticks on logarithmic axes of more than four decades, where they are a grey smear (and slow)."""
    from matplotlib.ticker import NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        if axis.get_scale() == "log" and high > 1e4 * low > 0:
            axis.set_minor_locator(NullLocator())
