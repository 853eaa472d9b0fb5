"""Columns of tables as the numbers that a network reads: gaps, text, dates and values far from training.

`learn` determines from a training table how each column becomes numbers; the `Encoding` it returns does so with every
later table, and tells how far its rows are from training.
"""

from mder_jax.columns.column import Column
from mder_jax.columns.complaints import CellError
from mder_jax.columns.encoding import Encoded, Encoding
from mder_jax.columns.leaks import leaks
from mder_jax.columns.learning import learn
from mder_jax.columns.targets import read_targets

__all__ = ["CellError", "Column", "Encoded", "Encoding", "leaks", "learn", "read_targets"]
