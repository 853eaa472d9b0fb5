"""The numbers that a figure shows."""

import numpy as np


def drawn(axes):
    """All coordinates of lines, points, areas and bars, (N, 2)."""
    lines = [line.get_xydata() for line in axes.lines]
    points = [part.get_offsets() for part in axes.collections]
    areas = [path.vertices for part in axes.collections for path in part.get_paths() if len(part.get_offsets()) < 2]
    bars = [bar.get_path().vertices + bar.get_xy() for bar in axes.patches if hasattr(bar, "get_xy")]
    return np.concatenate([np.asarray(part, float).reshape(-1, 2) for part in (*lines, *points, *areas, *bars)])


def line(axes, label):
    """The y of the line with this label."""
    (found,) = [line.get_ydata() for line in axes.lines if line.get_label() == label]
    return np.asarray(found, float)
