"""How figures are made: one style, one way to draw many members."""

import io
import pathlib
from typing import Any

STYLE = pathlib.Path(__file__).with_name("paper.mplstyle")


def new_figure(
    columns: int = 1, width: float = 5.0, height: float = 3.6, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """A figure in the project's style with rows times columns of axes; options as for ``Figure.subplots``."""
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use(STYLE)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def angle_axis(axes: Any, label: str = "t (rad)") -> None:
    """An x axis from 0 to 2π with ticks at multiples of π/2."""
    import numpy as np

    axes.set_xlim(0, 2 * np.pi)
    axes.set_xticks(np.arange(5) * np.pi / 2, ["0", "π/2", "π", "3π/2", "2π"])
    axes.set_xlabel(label)


def rendered(figure: Any) -> dict[str, bytes]:
    """The figure as PNG at 200 dpi and as PDF."""
    formats = {}
    for ending in ("png", "pdf"):
        drawing = io.BytesIO()
        figure.savefig(drawing, format=ending, dpi=200, metadata={"CreationDate": None} if ending == "pdf" else {})
        formats[ending] = drawing.getvalue()
        figure.set_layout_engine("none")  # the layout stands after the first drawing
    return formats
