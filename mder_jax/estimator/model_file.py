"""A fitted `MDERRegressor` as one file."""

import math
import pathlib
import platform
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np

import mder_jax
from mder_jax import persistence
from mder_jax._arguments import is_integer, target_names
from mder_jax._checks import doubles
from mder_jax.calibration import Scale
from mder_jax.columns import Column, Encoding
from mder_jax.columns.ranges import LARGEST, Range
from mder_jax.ensemble.members import leaves_by_path, like_those
from mder_jax.estimator import _calibration, beside as further, target_transforms
from mder_jax.estimator._held_out import HeldOut
from mder_jax.estimator._own_network import check_network, is_network
from mder_jax.estimator._predictor import Design, Predictor
from mder_jax.estimator._standardizer import Standardizer
from mder_jax.estimator.cross_conformal import FoldModel, MemberFold
from mder_jax.estimator.trained_rows import TrainedRows
from mder_jax.persistence import ModelFileError

KIND = "MDERRegressor"
# 1, or none, of the files of version 0.1.0; 2 also of networks that are not in the file; 3 of `table_network`, and of
# members beside the networks.
VERSION = 3
FITTED = ("flat_", "target_names_", "n_outputs_", "n_iter_", "n_rows_", "n_features_in_")
TRAINED = ("hashes", "repeats", "centre", "spread")
# Of the models of a cross-conformal calibration.
FOLDS_VERSION = 1
CURVES = ("loss_curve_", "validation_curve_", "diverged_at_", "best_epoch_")


def save(model: Any, path: str | pathlib.Path, extra: dict[str, Any] | None) -> None:
    """Settings, versions, names, scale and calibration as JSON; parameters, standardisers and curves as arrays."""
    predictor: Predictor = model.predictor_
    trained: TrainedRows | None = model.trained_rows_
    names = getattr(model, "feature_names_in_", None)
    calibrated, arrays = (None, {}) if model.calibration_ is None else _calibration.to_document(model.calibration_)
    folds = () if model.calibration_ is None else model.calibration_.folds
    transforms, points = target_transforms.to_document(predictor.transform)
    document = {
        "kind": KIND,
        "version": VERSION,
        "versions": {"mder_jax": mder_jax.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {name: _as_json(value) for name, value in model.get_params(deep=False).items()},
        "encoding": model.encoding_.to_json(),
        "design": _design_fields(predictor.design),
        "own_network": None if predictor.design.own is None else type(predictor.design.own).__name__,
        "own_loss": getattr(model, "own_loss_", False),
        "members": predictor.members,
        "fitted": {name: getattr(model, name) for name in FITTED},
        "feature_names": None if names is None else list(names),
        "scale": list(predictor.scale),
        "beside": further.to_document(predictor.beside)[0],
        "target_transforms": transforms,
        "calibration": calibrated,
        "folds": None if not folds else {"version": FOLDS_VERSION, "models": [_fold_fields(fold) for fold in folds]},
        "extra": getattr(model, "extra_", {}) if extra is None else extra,
        "trained_rows": None if trained is None else {"rows": trained.rows, "whole": trained.whole},
    }
    arrays |= points | _predictor_arrays(predictor)
    for number, fold in enumerate(folds):
        own = {"scores": fold.scores}
        by_members = isinstance(fold, MemberFold)
        own |= further.to_document(fold.beside)[1] if by_members else _predictor_arrays(fold.predictor)
        arrays |= {f"fold{number}/{name}": array for name, array in own.items()}
    arrays |= {name: getattr(model, name) for name in CURVES if getattr(model, name) is not None}
    if trained is not None:
        arrays |= {f"trained/{name}": getattr(trained, name) for name in TRAINED}
    held_out: HeldOut | None = getattr(model, "held_out_", None)
    if held_out is not None:
        arrays |= {f"held_out/{name}": array for name, array in held_out._asdict().items()}
    persistence.save(path, _without_nan(document), arrays)


def _design_fields(design: Design) -> dict[str, Any]:
    return {name: value for name, value in design._asdict().items() if name != "own"}


def _fold_fields(fold: FoldModel | MemberFold) -> dict[str, Any]:
    if isinstance(fold, MemberFold):
        return {"members": list(fold.members), "beside": further.to_document(fold.beside)[0]}
    own = fold.predictor
    fields = {"design": _design_fields(own.design), "beside": further.to_document(own.beside)[0]}
    return {"encoding": fold.encoding.to_json()} | fields


def _predictor_arrays(predictor: Predictor) -> dict[str, np.ndarray]:
    arrays = {f"params/{name}": leaf for name, leaf in leaves_by_path(predictor.params).items()}
    for part in ("inputs", "targets"):
        arrays |= {f"{part}/{name}": value for name, value in getattr(predictor, part)._asdict().items()}
    return arrays | further.to_document(predictor.beside)[1]


def _as_json(value: Any) -> Any:
    """A setting for JSON; a random generator becomes None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_as_json(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else None


def _without_nan(value: Any) -> Any:
    """JSON has neither NaN nor infinities: they become text, which float() accepts."""
    if isinstance(value, dict):
        return {name: _without_nan(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def load(
    cls: type, path: str | pathlib.Path, network: Any = None, loss: Any = None, target_transform: Any = None
) -> Any:
    """The model of a file; the user's network, loss and transformers of targets are not in it."""
    for name, value, is_valid in (("network", network, is_network), ("loss", loss, callable)):
        if value is not None and not is_valid(value):
            raise TypeError(f"{name} must be that of the fit, or None; got {value!r:.60}")
    return restored(cls, path, *persistence.load(path), network, loss, target_transform)


def restored(
    cls: type,
    path: str | pathlib.Path,
    document: dict[str, Any],
    arrays: dict[str, np.ndarray],
    network: Any = None,
    loss: Any = None,
    target_transform: Any = None,
) -> Any:
    """The model from the content of a file; every field is checked before it is used."""
    if document.get("kind") != KIND:
        raise ModelFileError(f"{path} holds a {document.get('kind')!r}, not a {KIND}")
    version = document.get("version", 1)
    if not is_integer(version) or version > VERSION:
        newer = (
            f"{path} was written by a newer mder_jax (version {version!r:.20} of its models, this one reads {VERSION})"
        )
        raise ModelFileError(f"{newer}: pip install --upgrade mder-jax")
    own = document.get("own_network")
    if own is not None and network is None:
        raise ModelFileError(
            f"{path} holds the parameters of a network of your own ({own!r:.60}) and no code; "
            "give the network again: MDERRegressor.load(path, network=...)"
        )
    if own is None and network is not None:
        raise ModelFileError(f"{path} was not trained with a network of your own; leave out network=")
    try:
        model = _restored(cls, document, arrays, network, loss)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, ArithmeticError) as error:
        raise ModelFileError(f"{path} does not fit together: {error}") from None
    try:
        transform = target_transforms.with_transformers(model.predictor_.transform, target_transform)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    model.predictor_ = replace(model.predictor_, transform=transform)
    if transform is not None and not isinstance(model.target_transform, str):
        model.target_transform = transform.settings()
    return model


def _restored(cls: type, document: dict[str, Any], arrays: dict[str, np.ndarray], network: Any, loss: Any) -> Any:
    settings = {**document["settings"], "network": network, "loss": loss}
    settings["hidden_layer_sizes"] = tuple(np.atleast_1d(settings["hidden_layer_sizes"]).tolist())
    if settings["nu_max"] is not None:
        settings["nu_max"] = float(settings["nu_max"])
    model = cls(**settings)
    design = _design(document["design"], network)
    inputs = _standardizer(arrays, "inputs", design.inputs)
    targets = _standardizer(arrays, "targets", design.targets)
    within, between = map(float, document["scale"])
    if not (0 < within < math.inf and 0 < between < math.inf):
        raise ModelFileError(f"factors on a covariance must be positive numbers; got {document['scale']}")
    model.encoding_ = _encoding(document, design, inputs)
    params = _params(arrays, design, document["members"])
    names = target_names(document["fitted"]["target_names_"], design.targets)
    transform = target_transforms.from_document(document.get("target_transforms"), arrays, names)
    beside = _beside(document.get("beside"), arrays, design)
    model.predictor_ = Predictor(design, params, inputs, targets, Scale(within, between), transform, beside)
    model.calibration_ = None
    if document["calibration"] is not None:
        found = _calibration.from_document(document["calibration"], arrays, design.targets)
        made = _folds(document.get("folds"), arrays, design, document["members"], model.encoding_)
        _check_scores(made, found.target_scores)
        model.calibration_ = found._replace(folds=made)
    for name, value in _fitted(document["fitted"], design, model.encoding_).items():
        setattr(model, name, value)
    columns = _feature_names(document, model.encoding_)
    if columns is not None:
        model.feature_names_in_ = np.array(columns, dtype=object)
    for name in CURVES:
        setattr(model, name, arrays.get(name))
    if not isinstance(document["extra"], dict):
        raise ModelFileError(f"extra must be a dict; got {document['extra']!r:.60}")
    model.extra_ = document["extra"]
    model.trained_rows_ = _trained_rows(document.get("trained_rows"), arrays, design)
    model.own_loss_ = bool(document.get("own_loss", False))
    model.held_out_ = _held_out_rows(arrays, document["members"])
    return model


def _design(fields: dict[str, Any], network: Any) -> Design:
    bound = fields["nu_max"] if fields["nu_max"] is None else float(fields["nu_max"])
    embedded = tuple((int(column), int(levels)) for column, levels in fields.get("embedded", ()))
    periodic = None if fields.get("periodic") is None else tuple(int(column) for column in fields["periodic"])
    numbers = {"widths": tuple(fields["widths"]), "nu_max": bound, "r": float(fields["r"])}
    numbers |= {"embedded": embedded, "periodic": periodic}
    design = Design(**{"relative": False} | fields | numbers | {"own": network})  # relative: not in 0.1.0
    if not isinstance(design.relative, bool):
        raise ModelFileError(f"relative must be true or false; got {design.relative!r}")
    if not 0 < design.r < math.inf:
        raise ModelFileError(f"r must be a positive number; got {design.r}")
    return design


def _folds(
    fields: dict[str, Any] | None, arrays: dict[str, np.ndarray], design: Design, members: int, encoding: Encoding
) -> tuple[Any, ...]:
    """The models of a cross-conformal calibration, which differ from the model in their inputs alone, or members."""
    if fields is None:
        return ()
    if fields["version"] != FOLDS_VERSION or not fields["models"]:
        wanted = f"there must be models of folds, of version {FOLDS_VERSION}"
        raise ModelFileError(f"{wanted}; got {len(fields['models'])} of version {fields['version']!r:.20}")
    parts = [(entry, _below(arrays, f"fold{number}/")) for number, entry in enumerate(fields["models"])]
    if all("members" in entry for entry, _ in parts):
        return tuple(_member_fold(entry, own, design, members) for entry, own in parts)
    return tuple(_fold(*part, design, members, encoding) for part in parts)


def _member_fold(fields: dict[str, Any], arrays: dict[str, np.ndarray], design: Design, members: int) -> MemberFold:
    chosen = fields["members"]
    known = isinstance(chosen, list) and all(is_integer(one) and 0 <= one < members for one in chosen)
    if not (known and chosen and sorted(set(chosen)) == chosen):
        raise ModelFileError(f"a fold must be of some of the {members} members; got {chosen!r:.60}")
    return MemberFold(tuple(chosen), _fold_scores(arrays, design), _beside(fields.get("beside"), arrays, design))


def _beside(fields: dict[str, Any] | None, arrays: dict[str, np.ndarray], design: Design) -> further.Beside | None:
    return further.from_document(fields, arrays, design.inputs, design.targets, design.embedded)


def _fold(
    fields: dict[str, Any], arrays: dict[str, np.ndarray], design: Design, members: int, encoding: Encoding
) -> FoldModel:
    own, columns = _design(fields["design"], design.own), Encoding.from_json(fields["encoding"])
    if own != design._replace(inputs=own.inputs, embedded=own.embedded, periodic=own.periodic):
        raise ModelFileError(f"the network of a fold must be that of the model; got {fields['design']!r:.60}")
    if (columns.names, columns.table_width) != (encoding.names, encoding.table_width):
        raise ModelFileError("a fold must have the columns of the model")
    if (columns.width, columns.embedded) != (own.inputs, own.embedded):
        raise ModelFileError(f"columns that become {columns.width} numbers do not fit {own.inputs} inputs of a fold")
    inputs, targets = (_standardizer(arrays, *part) for part in (("inputs", own.inputs), ("targets", own.targets)))
    beside = _beside(fields.get("beside"), arrays, own)
    predictor = Predictor(own, _params(arrays, own, members), inputs, targets, Scale(1.0, 1.0), beside=beside)
    return FoldModel(columns, predictor, _fold_scores(arrays, own))


def _fold_scores(arrays: dict[str, np.ndarray], design: Design) -> np.ndarray:
    scores, n = doubles("scores", arrays["scores"]), design.targets
    is_sorted = scores.ndim == 2 and np.array_equal(np.sort(scores, axis=0), scores, equal_nan=True)
    if not is_sorted or scores.shape[1] != n or np.any(scores < 0):
        raise ModelFileError(f"scores of a fold must be sorted, of {n} targets; got shape {scores.shape}")
    return scores


def _below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _check_scores(folds: tuple[Any, ...], scores: np.ndarray) -> None:
    """Raise unless the scores of the folds are together those of the calibration."""
    if folds:
        whole = np.sort(np.concatenate([fold.scores for fold in folds]), axis=0)[: len(scores)]
        if not np.array_equal(whole, scores, equal_nan=True):
            raise ModelFileError("the conformal scores are not those of the folds")


def _encoding(document: dict[str, Any], design: Design, inputs: Standardizer) -> Encoding:
    """How the columns of a table become the inputs of the networks."""
    stored = document.get("encoding")
    found = Encoding.from_json(stored) if stored is not None else _encoding_of_version_0_1_0(document, inputs)
    if (found.width, found.embedded) != (design.inputs, design.embedded):
        raise ModelFileError(f"columns that become {found.width} numbers do not fit {design.inputs} inputs")
    return found


def _feature_names(document: dict[str, Any], encoding: Encoding) -> list[str] | None:
    """The names of columns as scikit-learn knows them; in files of version 0.1.0 they are those of encoded columns."""
    if document.get("encoding") is None:
        return encoding.names
    return _names("feature_names", document["feature_names"], encoding.table_width)


def _encoding_of_version_0_1_0(document: dict[str, Any], inputs: Standardizer) -> Encoding:
    """Numbers and categories without gaps; their ranges are not known, so that no value is outside."""
    size = len(inputs.mean)
    names = _names("feature_names", document["feature_names"], size)
    plain = [{"name": name, "kind": "number", "categories": []} for name in names or [f"x{j}" for j in range(size)]]
    features = document["extra"].get("encoding", {}).get("features", plain)
    columns, start = [], 0
    for position, fields in enumerate(features):
        levels = tuple(map(str, fields["categories"]))
        column = Column(str(fields["name"]), position, str(fields["kind"]), levels=levels)
        if column.kind != "category":
            column = column._replace(ranges=(Range(-LARGEST, LARGEST, float(inputs.mean[start])),))
        columns.append(column)
        start += column.width
    named = names is not None or features is not plain
    return Encoding(tuple(columns), (), [column.name for column in columns] if named else None, len(columns))


def _held_out_rows(arrays: dict[str, np.ndarray], members: int) -> HeldOut | None:
    """The rows that members held out; None without early stopping, and in files of version 0.1.0."""
    if "held_out/sizes" not in arrays:
        return None
    found = HeldOut(*(arrays[f"held_out/{name}"] for name in HeldOut._fields))
    good = (
        found.sizes.dtype == np.int64 and found.sizes.shape == (members,) and np.all(found.sizes >= 0),
        found.hashes.dtype == np.uint64 and found.hashes.shape == found.copies.shape == (found.sizes.sum(),),
        found.copies.dtype == np.int32 and np.all(found.copies > 0),
        found.trained.dtype == bool and found.trained.shape == found.hashes.shape,
    )
    if not all(good):
        raise ModelFileError(f"the held-out rows are inconsistent: those of {members} members are {found.sizes!r:.60}")
    return found


def _trained_rows(fields: dict[str, Any] | None, arrays: dict[str, np.ndarray], design: Design) -> TrainedRows | None:
    """The rows of the fit; files of version 0.1.0 do not hold them."""
    if fields is None:
        return None
    parts: dict[str, Any] = {name: arrays[f"trained/{name}"] for name in TRAINED}
    found = TrainedRows(**parts, **fields)
    columns = design.inputs + design.targets
    good = (
        found.hashes.dtype == np.uint64 and found.hashes.ndim == 1 and found.hashes.size,
        isinstance(found.whole, bool) and is_integer(found.rows) and found.rows > 0,
        found.repeats.dtype.kind in "iu" and found.repeats.shape[1:] == (2,) and np.all(found.repeats > 0),
        found.centre.shape == found.spread.shape == (columns,) and np.all(found.spread > 0),
    )
    if not all(good):
        raise ModelFileError(f"the trained rows are inconsistent: {fields!r:.60}")
    return found


def _fitted(fields: dict[str, Any], design: Design, encoding: Encoding) -> dict[str, Any]:
    """The attributes of the fit, if they agree with the networks."""
    found = {name: fields[name] for name in FITTED}
    _names("target_names_", found["target_names_"], design.targets)
    if found["n_outputs_"] != design.targets or found["flat_"] not in (False, design.targets == 1):
        raise ModelFileError(f"a fit with {design.targets} targets did not leave {found}")
    columns = encoding.table_width, design.inputs  # of the table; of the encoded one in files of version 0.1.0
    if not is_integer(found["n_features_in_"]) or found["n_features_in_"] not in columns:
        raise ModelFileError(f"a fit with {columns[0]} columns did not leave {found['n_features_in_']!r:.60} features")
    if not all(is_integer(found[name]) for name in ("n_iter_", "n_rows_")):
        raise ModelFileError(f"epochs and rows must be integers; got {found['n_iter_']!r} and {found['n_rows_']!r}")
    return found | {"flat_": bool(found["flat_"]), "n_features_in_": encoding.table_width}


def _names(what: str, names: Any, count: int) -> Any:
    if names is not None and not (
        isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)
    ):
        raise ModelFileError(f"{what} must be null or {count} names; got {names!r:.60}")
    return names


def _standardizer(arrays: dict[str, np.ndarray], name: str, size: int) -> Standardizer:
    found = Standardizer(*(doubles(part, arrays[f"{name}/{part}"]) for part in ("mean", "std")))
    shapes = all(part.shape == (size,) for part in found)
    finite = np.isfinite(found.mean).all() and (np.isfinite(found.std).all() or name == "inputs")
    if not (shapes and finite and np.all(found.std > 0)):
        raise ModelFileError(f"{name} must have {size} finite means and positive standard deviations")
    return found


def _params(arrays: dict[str, np.ndarray], design: Design, members: int) -> Any:
    """The parameters, if they are exactly those of the design."""
    widths = [design.inputs, *design.widths]
    if not all(is_integer(size) and 0 < size < 1 << 20 for size in (*widths, members, design.targets)):
        raise ModelFileError(f"sizes must be integers; got {widths}, {design.targets} targets, {members} members")
    found = {name.removeprefix("params/"): array for name, array in arrays.items() if name.startswith("params/")}
    if design.own is None:
        if design.periodic is None and len(found) != 2 * len(widths) + len(design.embedded):
            raise ModelFileError(f"{len(found)} arrays are not those of hidden layers {design.widths!r:.60}")
        if "layers_0/kernel" in found:  # the names in files of version 0.1.0
            places = [(i, part) for i in range(len(widths)) for part in ("kernel", "bias")]
            found = {f"dense_{i}/{part}": found[f"layers_{3 * i}/{part}"] for i, part in places}
    else:
        check_network(design.own, design.inputs, design.targets)
    shapes = design.shapes()
    params = like_those("parameters", found, shapes, members)
    for got, wanted in zip(jax.tree.leaves(params), jax.tree.leaves(shapes), strict=True):
        if got.dtype != wanted.dtype:
            raise ModelFileError(f"parameters must be {wanted.dtype}, as the network makes them; got {got.dtype}")
    jax.eval_shape(jax.vmap(design.network().apply, (0, None)), params, np.zeros((1, design.inputs), np.float32))
    return params
