"""What the columns of a training table are (numbers, true and false, categories), and whether one can learn from it."""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax._encoding import (
    REMEDY,
    Column,
    Encoding,
    Rows,
    as_numpy,
    booleans_of,
    checked_type,
    is_text,
    numbers_of,
    text_of,
)
from mder_jax._tables import Table, TableError, quoted

DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
MOST_CATEGORIES = 100
MOSTLY_NUMBERS = 0.9  # above this, text in a column is a slip and not a category


class _Survey:
    """What is known of a column of text after some of its rows."""

    def __init__(self) -> None:
        self.texts = self.numbers = self.booleans = 0
        self.first_text: tuple[int, str] | None = None
        self.different: set[str] = set()

    def add(self, text: pa.Array, first_row: int) -> None:
        """Take more of its rows into account."""
        other = as_numpy(pc.and_(text.is_valid(), numbers_of(text).is_null()))
        self.texts += len(text) - text.null_count
        self.numbers += len(text) - text.null_count - int(other.sum())
        self.booleans += int(as_numpy(booleans_of(text).is_valid()).sum())
        if self.first_text is None and other.any():
            row = int(other.argmax())
            self.first_text = (first_row + row, text[row].as_py())
        if len(self.different) <= MOST_CATEGORIES:
            self.different.update(text.drop_null().unique().to_pylist())


def learn(table: Table, features: Sequence[str], targets: Sequence[str]) -> tuple[Encoding, int]:
    """How these columns of a training table become numbers, and how many rows it has."""
    surveys = {name: _Survey() for name in (*features, *targets)}
    types: dict[str, pa.DataType] = {}
    rows = 0
    for block in table.blocks(list(surveys)):
        types = types or {name: checked_type(table, block.schema.field(name)) for name in surveys}
        for name, survey in surveys.items():
            if is_text(types[name]):
                survey.add(text_of(table, block[name]), rows)
        rows += block.num_rows
    read = [_feature(table, name, types[name], surveys[name]) for name in features]
    return Encoding(tuple(read), tuple(_target(table, name, types[name], surveys[name]) for name in targets)), rows


def _kind(kind: pa.DataType, survey: _Survey) -> str:
    """What a column is: a dictionary has categories by its type, other text is judged by what it holds."""
    if pa.types.is_dictionary(kind):
        return "category"
    if pa.types.is_boolean(kind):
        return "boolean"
    if survey.numbers == survey.texts:
        return "number"
    return "boolean" if survey.booleans == survey.texts else "category"


def _target(table: Table, name: str, kind: pa.DataType, survey: _Survey) -> Column:
    column = Column(name, _kind(kind, survey))
    if column.kind == "category":
        raise TableError(f"{table.path}: target {quoted(name)} must hold numbers{_found(table, survey)}")
    return column


def _feature(table: Table, name: str, kind: pa.DataType, survey: _Survey) -> Column:
    column, start = Column(name, _kind(kind, survey)), f"{table.path}: column {quoted(name)}"
    if column.kind != "category":
        return column
    if not pa.types.is_dictionary(kind) and survey.numbers >= MOSTLY_NUMBERS * survey.texts:
        hint = "a cell without a value is left empty"
        raise TableError(f"{start} holds numbers and text{_found(table, survey)}; {hint}")
    if survey.different and all(DATE.fullmatch(text) for text in survey.different):
        raise TableError(f"{start} holds dates or times{_found(table, survey)}; {REMEDY}")
    if len(survey.different) > MOST_CATEGORIES:
        found = _found(table, survey)
        raise TableError(f"{start} holds text with more than {MOST_CATEGORIES} different values{found}; {REMEDY}")
    return column._replace(categories=tuple(sorted(survey.different)))


def _found(table: Table, survey: _Survey) -> str:
    if survey.first_text is None:
        return ""
    row, text = survey.first_text
    return f" ({table.place(row)} has {quoted(text)})"


def check_training(table: Table, encoding: Encoding, data: Rows) -> list[str]:
    """Raise if nothing can be learnt from these rows; the names of features that are the same in all of them."""
    n = len(encoding.targets)
    if len(data.Y) <= n:
        rows = "1 row is" if len(data.Y) == 1 else f"{len(data.Y)} rows are"
        raise TableError(f"{table.path}: {rows} too few for {n} target{'s' * (n > 1)}; at least {n + 1} are needed")
    for name, values in zip(encoding.target_names, data.Y.T, strict=True):
        known = values[~np.isnan(values)]
        if not known.size:
            raise TableError(f"{table.path}: target {quoted(name)} has no value in any row")
        if known.min() == known.max():
            raise TableError(f"{table.path}: target {quoted(name)} is {known[0]:g} in every row; nothing to learn")
    same = data.X.min(axis=0) == data.X.max(axis=0)
    owners = [column.name for column in encoding.features for _ in range(column.width)]
    return [name for name, constant in zip(owners, same, strict=True) if constant]
