"""What the commands of `mder` do: each takes the parsed options and returns its result, as data and as text."""

import argparse
import contextlib
import filecmp
import pathlib
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import mder_jax
from mder_jax import _encoding, _survey, _tables, _trained_rows
from mder_jax._encoding import Column, Encoding, Rows
from mder_jax._files import write_whole
from mder_jax._tables import Table

MOST_ROWS = 100_000  # for scores and for calibration: a larger table is represented by so many, drawn at random
# What a report holds of each row, and its curves: for the page, too long to print.
PER_ROW = ("joint_pit", "pit", "calibration_curve", "sparsification")

Result = tuple[dict[str, Any], str]


def train(options: argparse.Namespace) -> Result:
    """Table to model file."""
    start = time.monotonic()
    _tables.check_output(options.out, options.force)
    encoding, data, held_out, without_target = _training_rows(options)
    model, extra = _estimator().MDERRegressor(**_settings(options)), {"encoding": encoding.to_json()}
    with _checkpoint(options) as directory:
        model.fit(data.X, data.Y, checkpoint=directory, target_names=encoding.target_names)
        if held_out is not None:
            _calibrate(model, held_out, options.out, extra)
        _save(model, options.out, extra)
    missing = int(np.isnan(data.Y).sum())
    result = {
        "model": str(options.out),
        "members": model.members,
        "rows": len(data.X),
        "rows_without_target": without_target,
        "calibration_rows": 0 if held_out is None else len(held_out.X),
        "calibration": None if held_out is None else _calibration(model),
        "features": [column.name for column in encoding.features],
        "targets": encoding.target_names,
        "missing_targets": missing,
        "seconds": round(time.monotonic() - start, 3),
    }
    more = f" ({without_target:,} more have no target)" if without_target else ""
    sizes = f"{model.members} members, {len(data.X):,} rows{more}, {len(encoding.features)} features"
    gaps = f" ({missing:,} values missing)" if missing else ""
    text = f"{options.out}: {sizes}, {len(encoding.targets)} targets{gaps}, {result['seconds']:.1f} s"
    return result, text if held_out is None else f"{text}\n{model.calibration_}"


def _training_rows(options: argparse.Namespace) -> tuple[Encoding, Rows, Rows | None, int]:
    """How columns become numbers, the rows to train on and to calibrate with, and how many rows have no target.

    All that can be wrong with them is found here.
    """
    table = _tables.open_table(options.table)
    features = _features(table, options)
    other = _calibration_table(options, features)
    encoding, rows = _survey.learn(table, features, options.targets)
    with_target = _encoding.read_rows(table, encoding, rows, with_target=True)[0]
    _survey.check_targets(table, encoding, with_target.Y)
    data, held_out = _split(table, encoding, with_target, options)
    encoding, data, held_out = _as_trained(table, encoding, data, held_out)
    which = "" if len(data.X) == rows else " that is trained on"
    for name in _survey.constant_features(encoding, data.X):
        warnings.warn(f"column {name!r} is the same in every row{which}; nothing is learnt from it", stacklevel=1)
    if other is not None:
        held_out = _rows_to_calibrate_with(other, encoding, options)
        _refuse_trained_rows(other, data, held_out)
    return encoding, data, held_out, rows - len(with_target.X)


def _save(model: Any, path: pathlib.Path, extra: dict[str, Any]) -> None:
    """Save the model; if that fails, somewhere else, so that the training was not in vain."""
    try:
        model.save(path, extra)
    except OSError as error:
        spare = pathlib.Path(tempfile.mkdtemp(prefix="mder-")) / path.name
        model.save(spare, extra)
        raise OSError(f"{path} could not be written ({error}); the trained model was saved as {spare}") from error


def _calibrate(model: Any, held_out: Rows, path: pathlib.Path, extra: dict[str, Any]) -> None:
    """Calibrate; if that fails, save the model as it is, so that the training was not in vain."""
    try:
        model.calibrate(held_out.X, held_out.Y)
    except ValueError as error:
        _save(model, path, extra)
        raise ValueError(f"{error}; the trained model is in {path}, not calibrated") from error


def _calibration(model: Any) -> dict[str, Any]:
    """What was found with the rows held out, without the scores of each."""
    return {"fit": model.calibration_.fit, "coverage": model.calibration_.checks}


def _features(table: Table, options: argparse.Namespace) -> list[str]:
    """The columns to learn from: those named, or all that are neither targets nor excluded."""
    _tables.require_columns(table, options.targets, "--targets")
    _tables.require_columns(table, options.features or options.exclude, "--features or --exclude")
    outputs = _encoding.prediction_names(options.targets)
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"columns of predictions would have the same name; rename {_tables.listed(options.targets)}")
    left_out = {*options.targets, *options.exclude}
    features = options.features or [name for name in table.names if name not in left_out]
    if not features:
        raise ValueError(f"{table.path}: no column is left to learn from besides the targets")
    return features


def _calibration_table(options: argparse.Namespace, features: list[str]) -> Table | None:
    """The table that --calibrate names, if it does; it must not be the one to train on, nor a copy."""
    if not isinstance(options.calibrate, pathlib.Path):
        return None
    other = _tables.open_table(options.calibrate)
    if filecmp.cmp(options.table, other.path, shallow=False):
        same = "these are the rows to train on, which cannot tell how far predictions are off"
        raise ValueError(f"--calibrate {other.path}: {same}; give other rows, or a fraction such as 0.2")
    _tables.require_columns(other, [*features, *options.targets], "the table to train on")
    return other


def _rows_to_calibrate_with(table: Table, encoding: Encoding, options: argparse.Namespace) -> Rows:
    rows = _encoding.read_rows(table, encoding, MOST_ROWS, options.seed, with_target=True)[0]
    if not len(rows.Y):
        targets = _tables.listed(encoding.target_names)
        raise ValueError(f"{table.path}: no row has a value of {targets}, so that there is nothing to calibrate with")
    return rows


def _refuse_trained_rows(table: Table, data: Rows, held_out: Rows) -> None:
    found, share = _trained_rows.found_among(_trained_rows.remember(data.X, data.Y), held_out.X, held_out.Y)
    if share >= _trained_rows.REFUSED:
        these = f"{found:,} of {len(held_out.X):,} rows are rows to train on"
        raise ValueError(f"{table.path}: {these}; calibrate with others, or give a fraction such as 0.2")


def _split(table: Table, encoding: Encoding, data: Rows, options: argparse.Namespace) -> tuple[Rows, Rows | None]:
    """The rows to train on, and those to calibrate with if a fraction of them is, drawn at random."""
    if not isinstance(options.calibrate, float):
        return data, None
    held_out = np.zeros(len(data.X), bool)
    size = max(1, round(options.calibrate * len(held_out)))
    held_out[np.random.default_rng(options.seed).permutation(len(held_out))[:size]] = True
    _survey.check_targets(table, encoding, data.Y[~held_out], f" that --calibrate {options.calibrate:g} leaves")
    return Rows(*(values[~held_out] for values in data)), Rows(*(values[held_out] for values in data))


def _as_trained(
    table: Table, encoding: Encoding, data: Rows, held_out: Rows | None
) -> tuple[Encoding, Rows, Rows | None]:
    """The encoding without categories that are not trained on, and the rows in it.

    Calibration rows with such a category are left out. `predict` refuses it, so those that remain are like the rows
    that it takes; to train on some of them instead would make the others unlike.
    """
    known, kept = encoding.known_in(data.X)
    if kept.all():
        return encoding, data, held_out
    for before, after in zip(encoding.features, known.features, strict=True):
        lost = [category for category in before.categories if category not in after.categories]
        if lost:
            where = f"is {_tables.listed(lost)} only in rows that are not trained on"
            warnings.warn(f"column {before.name!r} {where}; mder predict will refuse such rows", stacklevel=2)
    if held_out is not None:
        held_out = _with_known_categories(table, held_out, kept)
    return known, data._replace(X=data.X[:, kept]), held_out


def _with_known_categories(table: Table, rows: Rows, kept: np.ndarray) -> Rows:
    unknown = np.asarray(rows.X[:, ~kept].any(axis=1))
    if unknown.all():
        raise ValueError(f"{table.path}: each row held out to calibrate has a category that no other row has")
    if unknown.any():
        count = f"{unknown.sum():,} of {len(unknown):,} rows held out to calibrate"
        warnings.warn(f"{count} are left out: they have a category that is not trained on", stacklevel=3)
    return Rows(rows.X[~unknown][:, kept], rows.Y[~unknown], rows.numbers[~unknown])


def _estimator() -> Any:
    """The module of the estimator. It takes seconds to import, so what can be checked before is checked before."""
    mder_jax.use_compilation_cache()
    from mder_jax import estimator

    return estimator


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the estimator; what was not said is left to its defaults."""
    given = {
        "members": options.members,
        "hidden_layer_sizes": options.hidden,
        "max_iter": options.epochs,
        "learning_rate_init": options.learning_rate,
        "validation_fraction": options.validation,
        "random_state": options.seed,
        "verbose": _shows_progress(options),
    }
    return {name: value for name, value in given.items() if value is not None}


def _shows_progress(options: argparse.Namespace) -> bool:
    return not options.quiet and sys.stderr.isatty()


@contextlib.contextmanager
def _checkpoint(options: argparse.Namespace) -> Iterator[pathlib.Path]:
    """The directory of checkpoints. Unless the user named it, it is removed after success, and if it was of no use."""
    own, directory = options.own_checkpoint, options.checkpoint
    before = directory.exists()
    try:
        yield directory
    except ValueError as error:
        if own and not before and not any(path.name.isdigit() for path in directory.glob("*")):
            shutil.rmtree(directory, ignore_errors=True)
        if str(directory) in str(error):
            raise ValueError(f"{error}\nRemove {directory} to start anew.") from error
        raise
    if own:
        shutil.rmtree(directory, ignore_errors=True)


def predict(options: argparse.Namespace) -> Result:
    """Model file and table to a table of predictions."""
    if options.out.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{options.out}: predictions go to a file that ends in .csv or .parquet")
    _tables.check_output(options.out, options.force)
    table = _tables.open_table(options.table)
    _tables.require_columns(table, options.keep, "--keep")
    model, encoding = _load(options.model)
    _tables.require_columns(table, [column.name for column in encoding.features], "the model")
    names = _encoding.prediction_names(encoding.target_names)
    clash = [name for name in options.keep if name in names]
    if clash:
        raise ValueError(f"--keep {clash[0]}: the predictions have a column of this name")
    _encoding.check_features(table, encoding)  # a bad row is found before anything is predicted
    batches = _predictions(model, encoding, table, options)
    rows = _tables.write_table(options.out, _counted(batches) if _shows_progress(options) else batches)
    result = {"predictions": str(options.out), "rows": rows, "columns": [*options.keep, *names]}
    return result, f"{options.out}: {rows:,} rows, {len(encoding.targets)} targets"


def _load(path: pathlib.Path) -> tuple[Any, Encoding]:
    model = _estimator().MDERRegressor.load(path)
    if "encoding" not in model.extra_:
        raise ValueError(f"{path} was not written by mder train: it does not say how columns become numbers")
    return model, Encoding.from_json(model.extra_["encoding"])


def _predictions(model: Any, encoding: Encoding, table: Table, options: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    features = [column.name for column in encoding.features]
    row = 0
    for block in table.blocks([*features, *(name for name in options.keep if name not in features)]):
        X = _encoding.features_of(table, encoding, block, row)
        lower, upper = model.predict_interval(X, coverage=options.coverage)
        predicted = _encoding.prediction_columns(encoding.target_names, model.predict_uncertainty(X), lower, upper)
        yield pa.RecordBatch.from_pydict({name: block[name] for name in options.keep} | predicted)
        row += block.num_rows


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, with the number of rows so far on standard error."""
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        print(f"\r{rows:,} rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def evaluate(options: argparse.Namespace) -> Result:
    """Model file and table to scores, and to a page."""
    if options.report:
        _tables.check_output(options.report, options.force)
    table = _tables.open_table(options.table)
    model, encoding = _load(options.model)
    data, rows = _encoding.read_rows(table, encoding, MOST_ROWS)
    if np.isnan(data.Y).all():
        raise ValueError(f"{table.path}: no target has a value in any row")
    _warn_of_trained_rows(model, data)
    import jax

    from mder_jax import metrics

    drawn = f"{len(data.X):,} of {rows:,} rows, drawn at random" if len(data.X) < rows else ""
    interval = model.predict_interval(data.X, coverage=options.coverage)
    with jax.enable_x64(True):  # in original units: 2020.5 ± 0.001 has no digits left in float32
        prediction = model.predict_dist(data.X)
        report = metrics.report(data.Y, prediction, options.coverage, encoding.target_names)
        if options.report:
            facts = {"model": str(options.model), "table": str(options.table), "rows": drawn or f"{rows:,}"}
            _write_page(options, facts, model, data, prediction, report, interval)
    intervals = _interval_coverage(data.Y, *interval)
    scores = {name: value for name, value in report._asdict().items() if name not in PER_ROW}
    result = {"rows": rows, "rows_used": len(data.X), **scores, "intervals": intervals}
    kind = _kind_of_intervals(model, encoding, options.coverage)
    covered = _coverage_line(encoding, intervals, f"{options.coverage:g} ({kind})")
    return result, "\n\n".join(part for part in (drawn, str(report), covered) if part)


def _warn_of_trained_rows(model: Any, data: Rows) -> None:
    if model.trained_rows_ is None:
        return
    found, share = _trained_rows.found_among(model.trained_rows_, data.X, data.Y)
    if share >= _trained_rows.NOTICED:
        these = f"{found:,} of {len(data.X):,} rows are rows that the model was trained on"
        warnings.warn(f"{these}; scores of other rows will be worse", stacklevel=2)


def _write_page(
    options: argparse.Namespace,
    facts: dict[str, str],
    model: Any,
    data: Rows,
    prediction: Any,
    report: Any,
    interval: tuple[np.ndarray, np.ndarray],
) -> None:
    from mder_jax import _page

    page = _page.evaluation_page(
        data.Y,
        prediction,
        report,
        title=f"{options.model.name} on {options.table.name}",
        facts=facts | {"members": str(model.members)},
        uncertainty=model.predict_uncertainty(data.X),
        lower=interval[0],
        upper=interval[1],
        rows=list(data.numbers + 1),
    )
    write_whole(options.report, page.encode())


def _interval_coverage(Y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> dict[str, np.ndarray]:
    """How often each target lies in the interval that `predict` writes, and its binomial standard error, (n,) each.

    NaN for a target that is in no row.
    """
    known = ~np.isnan(Y)
    size = np.where(known.any(axis=0), known.sum(axis=0), np.nan)
    share = np.sum((lower <= Y) & (upper >= Y), axis=0) / size
    return {"coverage": share, "standard_error": np.sqrt(share * (1 - share) / size)}


def _kind_of_intervals(model: Any, encoding: Encoding, coverage: float) -> str:
    """Whether they are conformal, which takes enough calibration rows of each target."""
    own, names = "the model's own quantiles", np.array(encoding.target_names)
    if model.calibration_ is None:
        return own
    conformal = np.isfinite(model.calibration_.radius(coverage, joint=False))
    if conformal.all() or not conformal.any():
        return "conformal" if conformal.all() else own
    return f"conformal for {', '.join(names[conformal])}; {own} for {', '.join(names[~conformal])}"


def _coverage_line(encoding: Encoding, intervals: dict[str, np.ndarray], coverage: str) -> str:
    shares = zip(encoding.target_names, intervals["coverage"], intervals["standard_error"], strict=True)
    each = ", ".join(
        f"{name} not observed" if np.isnan(share) else f"{name} {share:.3f} ± {error:.3f}"
        for name, share, error in shares
    )
    return f"inside the intervals of mder predict at {coverage}: {each}"


def info(options: argparse.Namespace) -> Result:
    """What a model file says of itself."""
    from mder_jax import _model_file, persistence

    about, arrays = persistence.load(options.model)
    model = _model_file.restored(_estimator().MDERRegressor, options.model, about, arrays)
    return about, "\n".join(_outline(options.model, model, about))


def _outline(path: pathlib.Path, model: Any, about: dict[str, Any]) -> Iterator[str]:
    """What one would ask first; the rest is in the JSON."""
    from mder_jax._arrays import target_names

    design, usual = model.predictor_.design, type(model)().get_params()
    encoding = Encoding.from_json(model.extra_["encoding"]) if "encoding" in model.extra_ else None
    targets = encoding.target_names if encoding else target_names(model.target_names_, design.targets)
    chosen = {name: value for name, value in model.get_params().items() if value != usual[name]}
    versions = about.get("versions") or {}
    yield f"{path}: {model.predictor_.members} networks with hidden layers of {_joined(design.widths, ' and ')}"
    yield f"targets:   {_tables.listed(targets)}"
    if encoding:
        yield f"features:  {', '.join(map(_described, encoding.features))}"
    else:
        yield f"features:  {_tables.listed(getattr(model, 'feature_names_in_', [])) or f'{design.inputs} columns'}"
    yield f"trained:   {model.n_rows_:,} rows, {model.n_iter_} epochs"
    yield f"settings:  {_joined(f'{name} {value}' for name, value in chosen.items()) or 'the defaults'}"
    yield f"written:   {about.get('date')}, {_joined(f'{name} {version}' for name, version in versions.items())}"
    yield str(model.calibration_ or "not calibrated")


def _described(column: Column) -> str:
    known = f" ({_tables.listed(column.categories)})" if column.categories else ""
    return f"{_tables.quoted(column.name)}{known}"


def _joined(parts: Iterable[Any], between: str = ", ") -> str:
    return between.join(map(str, parts))
