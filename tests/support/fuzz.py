"""Fuzzed calls of every public function: each returns what it promises, or refuses with a message of its own.

    python -m tests.support.fuzz --cases 100000 --seed 0          # everything: a table, and the numbers of faulty cases
    python -m tests.support.fuzz --only metrics.crps --case 17    # one case again: its arguments, and what happens

A line of `FUNCTIONS` tells how a valid call is made; then some of its arguments are spoilt. Cases of even number run
with double precision and strict promotion, as the tests do, the others with JAX as it comes. Every other call is only
traced, for its shapes, since JAX compiles for each shape anew.
"""

import argparse
import contextlib
import copy
import dis
import faulthandler
import functools
import inspect
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import sklearn
from flax import linen, nnx
from safetensors.numpy import save as as_safetensors

import mder_jax as mder
from mder_jax import NIG, NIW, MDERRegressor, Mixture, StudentT, persistence
from mder_jax.estimator import Region
from mder_jax.networks.embeddings import PeriodicEmbedding
from mder_jax.persistence import ModelFileError
from mder_jax.pipeline import make_pipeline
from mder_jax.student_t import Interval

# Names | kinds of arguments that their name does not tell | shapes of the arrays returned, behind a slash those with
# reduce=False | notes: share of the usual number of cases, "concrete" if it cannot be traced, "slow" if that is nothing
# for a quick run, "picky" if it may refuse what is drawn, "any" if it returns more than finite floats, needed targets.
# A kind is one of KINDS, or letters for axes: of any numbers, after "+" of positive ones, after "%" of shares.
FUNCTIONS = """
NIW | | Bn Bnn B B |
niw.couple | | Bn Bnn B B |
niw.log_evidence,log_prob,total_evidence,mutual_information | | B |
niw.predictive | | B Bn Bnn |
niw.sample | | SBn SBnn | 0.5
niw.aleatoric,epistemic | | |
niw.posterior | | Bn Bnn B B | 0.5
niw.marginal | | Bk Bkk B B | 0.5
NIG | mu:B | B B B B |
nig.to_niw | | |
nig.from_niw | | B B B B | n=1
nig.log_evidence,aleatoric,epistemic,total_evidence | | B |
StudentT | | B Bn Bnn |
StudentT.log_prob,mahalanobis,joint_pit,region_radius | | B |
StudentT.mean,marginal_scale,cdf | | Bn |
StudentT.ppf | p:%Bn | Bn |
StudentT.interval | | Bn Bn |
StudentT.covariance | | Bnn | 0.5
StudentT.entropy | | B | 0.5
StudentT.sample | | SBn |
StudentT.marginal | | B Bk Bkk | 0.5
StudentT.conditional | | B Bj Bjj | 0.5 n=3
Mixture | | |
Mixture.components | | MB MBn MBnn | 0.5
Mixture.member | | B Bn Bnn |
Mixture.log_prob,mahalanobis | | B |
Mixture.region_radius | | B | 0.5
Mixture.mean,std | | Bn | 0.5
Mixture.aleatoric,epistemic_within,epistemic_between,epistemic,total,covariance | | Bnn | 0.3
Mixture.sample | | SBn | 0.5
Mixture.cdf | | Bn |
Mixture.ppf | p:%Bn | Bn | 0.5
Mixture.quantiles | levels:%K | KBn | 0.3
Mixture.interval | | Bn Bn | 0.3
Mixture.conditional | | | 0.3 n=3
links.num_outputs | | | any
links.niw_link | raw:BR | Bn Bnn B B |
links.inverse_niw_link | nu_max:infinity | BR |
links.nig_link | raw:B4 n:none | B B B B |
links.inverse_nig_link | n:none | B4 |
links.gaussian_link | raw:BG full:true | B Bn Bnn | any
links.inverse_gaussian_link | full:true | BG |
losses.mder_nll,gaussian_nll | | B |
losses.evidence_regulariser,der_loss | y:B | B |
special.log_gamma_ratio | x:+B | B |
special.t_cdf,joint_pit | | B |
special.t_ppf | p:%B | B |
special.joint_radius | coverage:%B | B |
linalg.tril_size | | | any
linalg.unpack_tril | entries:BT | Bnn |
linalg.half_logdet | | B |
linalg.whiten | d:Bn | Bn |
metrics.nll,energy_score | | . / N |
metrics.variogram_score | p:%. | . / N | n=2
metrics.crps,interval_score | | . / Nn |
metrics.rmse,calibration_error,ence,ause,sharpness | | . / n |
metrics.coverage | prediction:given | n n n |
metrics.joint_coverage | prediction:given | . . |
metrics.pit | | Nn |
metrics.joint_pit | | N |
metrics.calibration_curve | | 4 4n |
metrics.sparsification | | |
metrics.report | | | 0.3 concrete slow any
metrics.nll_scorer,crps_scorer,energy_scorer,rmse_scorer | y:N2 | | 0.3 concrete slow
calibration.rescale | | |
calibration.fit_scale | | | 0.5 concrete slow picky any
calibration.conformal_scores,conformal_radius | | | 0.5 concrete slow any
calibration.radius_of | scores:+Nn | n | concrete any
datasets.circle | | 41 42 |
datasets.cubic | | 41 41 |
datasets.circle_mean | t:B | B2 |
datasets.circle_covariance | t:B | B22 |
datasets.three_points | noise:three | |
datasets.three_points_mean | x:B | B |
datasets.student_t | df:+. scale:%. | 4n |
columns.learn | | | concrete picky any
columns.leaks | | | concrete any
columns.read_targets | | N2 | concrete
Encoding.encode,numbers,to_json,from_json | | | concrete any
datasets.real | name:table | | concrete picky any
plotting.ellipses | targets:pair | | 0.5 concrete slow any n=2
plotting.bands,predicted_observed,calibration,pit,sparsification | | | 0.5 concrete slow any
plotting.nu_gate | niw:lines | | 0.5 concrete slow any
networks.mlp,from_linen,from_nnx,table_network | | | concrete any
train.fit | | | concrete picky any
ensemble.fit_ensemble | | | concrete picky any
ensemble.predict | rows:four reduce:none devices:none | MN2 | concrete slow picky
ensemble.load_ensemble | | | concrete picky any
Ensemble.keep | members:indices | | concrete slow any
Ensemble.save | | | concrete slow picky any
devices.use_all_cores,use_compilation_cache | | | concrete picky any
process.fit_process,best_kernel,log_evidence | weights:+N landmarks:four | | 0.3 concrete picky any
forest.fit_forest | rows:indices | | 0.3 concrete picky any
Process.predict | | | 0.3 concrete any
Forest.predict,rows | | | 0.3 concrete any
MDERRegressor.fit | | | 0.1 concrete slow picky any
MDERRegressor.predict,predict_uncertainty,predict_dist,predict_all,sample_y,score,log_prob | | | concrete slow
MDERRegressor.predict_interval,predict_quantiles | | | concrete slow any
MDERRegressor.calibrate | method:pull separate:none cv:none sample_weight:none | | 0.2 concrete slow picky any
MDERRegressor.plot | | | 0.2 concrete slow any
MDERRegressor.save,export,load | | | 0.2 concrete slow picky any
Pipeline.predict,predict_uncertainty,predict_dist,predict_all,sample_y,score,log_prob | | | 0.1 concrete slow
Pipeline.predict_interval,predict_quantiles,plot | | | 0.1 concrete slow any
Pipeline.calibrate | method:pull separate:none cv:none sample_weight:none | | 0.1 concrete slow picky any
Pipeline.save,export,load | | | 0.1 concrete slow picky any
Prediction.uncertainty,distribution | | | 0.1 concrete slow
Prediction.interval | | | 0.1 concrete slow any
Region.contains,distance,log_volume | | N | concrete any
fuzz.fit_with_settings | | | 0.5 concrete picky any
fuzz.open_model_file | | | concrete slow picky any
persistence.save,load | | | concrete picky any
"""

# ---- How a valid argument is made: a kind is a function of a random generator and of the axes that letters stand for.


def draw_axes(rng, n=None, usual=False):
    """The axes of a case by letter; the usual ones are always the same, so that there is little to compile."""
    n = n or (2 if usual else int(rng.integers(1, 4)))
    raw, k = mder.num_outputs(n), int(rng.integers(1, max(n, 2)))
    sizes = {"n": n, "k": k, "j": n - k, "T": mder.tril_size(n), "R": raw, "G": raw - 1, "M": 2, "N": 6, "K": 3}
    batch, front = ((3,), (2,)) if usual else ([(3,), (), (2, 3)][rng.integers(3)], [(), (2,), (2, 1)][rng.integers(3)])
    return {"B": batch, "S": front, ".": ()} | {x: (size,) for x, size in (sizes | {"1": 1, "2": 2, "4": 4}).items()}


def shape(letters, axes):
    return sum((axes[letter] for letter in letters), ())


def numbers(letters):
    """A single one, the letter ".", is Python's."""
    low, high = {"+": (2.5, 9.0), "%": (0.1, 0.9)}.get(letters[0], (-3.0, 3.0))
    letters = letters.lstrip("+%")
    return lambda rng, axes: rng.uniform(low, high, None if letters == "." else shape(letters, axes))


def triangular(letters):
    return lambda rng, axes: np.tril(numbers(letters)(rng, axes), -1) / 5 + rng.uniform(1, 2) * np.eye(*axes["n"])


def one_of(*values):
    return lambda rng, axes: values[rng.integers(len(values))]


def either(*kinds):
    return lambda rng, axes: kinds[rng.integers(len(kinds))](rng, axes)


def built(make, *kinds):
    return lambda rng, axes: make(*(kind(rng, axes) for kind in kinds))


def nu(batch):
    return lambda rng, axes: numbers("+" + batch)(rng, axes) + axes["n"][0]


def niw(batch):
    return built(NIW, numbers(batch + "n"), triangular(batch + "nn"), numbers("+" + batch), nu(batch))


def student_t(batch):
    return built(StudentT, numbers("+" + batch), numbers(batch + "n"), triangular(batch + "nn"))


def covariance(rng, axes):
    L = triangular("Bnn")(rng, axes)
    return L @ np.swapaxes(L, -1, -2)


def squared_error(output, y):
    return jnp.sum((output - y.astype(output.dtype)) ** 2, axis=-1)


def mean_squared_error(output, y):
    """A loss that is refused before anything is compiled, since it is reduced."""
    return jnp.mean(squared_error(output, y))


def fit_with_settings(settings, y):
    """A fit that is refused because of its settings or else of y, before anything is compiled."""
    return MDERRegressor(**settings).fit(np.eye(2), y)


@functools.cache
def fitted():
    """A tiny model of two inputs and two targets, calibrated."""
    X, Y, *held_out = np.random.default_rng(0).normal(size=(4, 60, 2))
    return MDERRegressor((2,), members=2, max_iter=2, random_state=0).fit(X, Y).calibrate(*held_out)


@functools.cache
def trained():
    """A tiny ensemble."""
    X, options = np.ones((4, 2), np.float32), {"members": 2, "epochs": 1, "progress": False}
    return mder.fit_ensemble(jax.random.key(0), LINE, squared_error, X, X, optimizer=optax.sgd(0.1), **options)


@functools.cache
def encoding():
    """Of a table with a number and a category."""
    return mder.columns.learn([[1.0, 5], [2.0, 6], [3.0, 5]], categorical=[1])[0]


LINE = mder.Network(lambda key, x: jnp.ones((2, 2), jnp.float32), lambda w, x: x.astype(w.dtype) @ w)
SETTINGS = MDERRegressor((2,), members=1, max_iter=1, random_state=0).get_params()
FLAG, SHARE, NONE, TWO, FOUR = one_of(True, False), numbers("%."), one_of(None), one_of(2), one_of(4)
INTERVAL = built(Interval, numbers("Nn"), numbers("+Nn"))
PREDICTION = either(student_t("N"), niw("N"), built(Mixture, either(niw("MN"), student_t("MN"))))
MEMBERS, TABLE = either(niw("MB"), student_t("MB")), numbers("N2")
# Of the argument with this name, or before it with that of its class or module, which come first.
# fmt: off
KINDS = {
    "mu": numbers("Bn"), "L": triangular("Bnn"), "kappa": numbers("+B"), "nu": nu("B"), "r": numbers("+."),
    "df": numbers("+B"), "loc": numbers("Bn"), "scale_tril": triangular("Bnn"), "sigma": covariance,
    "alpha": numbers("+B"), "beta": numbers("+B"), "niw": niw("B"), "gaussian": student_t("B"),
    "nig": built(NIG, numbers("B"), *[numbers("+B")] * 3), "StudentT.self": student_t("B"),
    "Mixture.members": MEMBERS, "log_weights": either(NONE, numbers("MB")), "Mixture.self": built(Mixture, MEMBERS),
    "prediction": PREDICTION, "given": either(PREDICTION, INTERVAL), "interval": INTERVAL,
    "y": numbers("Bn"), "nig.y": numbers("B"), "metrics.y": numbers("Nn"), "calibration.y": numbers("Nn"),
    "plotting.y": numbers("Nn"), "Region.y": numbers("Nn"), "observations": numbers("BKn"), "values": numbers("Bk"),
    "targets": lambda rng, axes: rng.permutation(*axes["n"])[: axes["k"][0]].tolist(), "pair": one_of([0, 1], (1, 0)),
    "n": lambda rng, axes: axes["n"][0], "key": lambda rng, axes: jax.random.key(rng.integers(9)),
    "shape": lambda rng, axes: axes["S"], "draws": TWO, "coverage": SHARE, "level": SHARE, "lam": SHARE, "floor": SHARE,
    "noise": SHARE, "i": one_of(0, 1, -1), "missing": FLAG, "reduce": FLAG, "joint": FLAG, "separate": FLAG,
    "relative": FLAG, "true": one_of(True), "none": NONE, "four": FOUR, "form": one_of("stable", "slogdet"),
    "definition": one_of("amini2020"), "method": one_of("likelihood", "posterior"), "pull": one_of("pull"),
    "nu_min": NONE, "nu_max": one_of(None, np.inf, 99.0), "infinity": one_of(np.inf), "t": numbers("B"),
    "radius": numbers("+B"), "levels": FOUR, "bins": FOUR,
    "uncertainty": either(numbers("+N"), numbers("+Nn")), "scale": built(mder.Scale, numbers("+."), numbers("+.")),
    "names": lambda rng, axes: [f"y{j}" for j in range(*axes["n"])], "name": one_of("price", None), "target": one_of(0),
    "rows": one_of([0, 2], None, 3), "x": numbers("N"), "lines": either(niw("N"), niw("MN")), "ax": NONE,
    "points": FOUR, "low": one_of(-4.0), "high": FOUR, "repeats": TWO, "three": one_of((0.1, 0.1, 0.5)),
    "table": one_of("slump", "energy"), "folder": one_of(None, "."), "estimator": lambda rng, axes: fitted(),
    "X": TABLE, "Y": TABLE, "MDERRegressor.y": TABLE, "MDERRegressor.self": lambda rng, axes: copy.copy(fitted()),
    "Pipeline.y": TABLE, "Pipeline.self": lambda rng, axes: make_pipeline("passthrough", copy.copy(fitted())),
    "steps": one_of([("scale", "passthrough")], []),
    "return_std": FLAG, "return_cov": one_of(False), "quantiles": one_of((0.1, 0.9), [0.5]), "n_samples": TWO,
    "random_state": one_of(0), "sample_weight": numbers("+N"), "extra": one_of({"a": [1]}), "checkpoint": NONE,
    "target_names": NONE, "groups": NONE, "target_transform": NONE, "transformed": FLAG, "legend": FLAG,
    "on_interrupt": one_of("return", "raise"),
    "kind": one_of("calibration", "pit", "predicted_observed", "sparsification", "ellipses"), "directory": NONE,
    "Prediction.self": lambda rng, axes: fitted().predict_all(np.ones((6, 2))),
    "Region.self": built(Region, numbers("Nn"), triangular("Nnn"), numbers("+N")), "path": one_of("model.mder"),
    "document": one_of({"r": [1.0, None, "a"]}), "arrays": built(lambda a: {"a": a, "b": np.ones(2)}, TABLE),
    "cores": one_of(None, 1), "widths": one_of((2,), [3, 2]), "outputs": TWO, "activation": one_of("relu", "silu"),
    "link": NONE, "dropout": one_of(0.0, 0.5), "kernel_init": NONE, "bias_init": NONE, "rngs": one_of(("dropout",)),
    "module": one_of(linen.Dense(2)), "make_module": one_of(lambda rngs: nnx.Linear(2, 2, rngs=rngs)),
    "network": one_of(LINE), "loss": one_of(*[mean_squared_error] * 19, squared_error), "epochs": TWO,
    "optimizer": one_of(optax.sgd(0.1)), "batch_size": one_of(2, None), "steps_per_epoch": one_of(None, 2),
    "weights": numbers("+N"), "patience": TWO, "validation": built(lambda *pair: pair, TABLE, TABLE),
    "bootstrap": FLAG, "init": NONE, "extend": one_of(False), "MDERRegressor.network": NONE, "MDERRegressor.loss": NONE,
    "members": TWO, "devices": one_of([]), "progress": one_of(False), "callback": NONE,
    "callback_every": one_of(None, 1), "checkpoint_every": one_of(None, 1), "ensemble": lambda rng, axes: trained(),
    "Ensemble.self": lambda rng, axes: trained(), "indices": one_of([0], [1, 0]), "fuzz.y": one_of(np.zeros(3)),
    "columns.table": TABLE, "columns.names": one_of(["a", "b"]), "categorical": one_of([0], None, ["x1"]),
    "Encoding.table": TABLE, "Encoding.X": built(lambda x: np.concatenate([x, x[:, :1]], 1), TABLE),
    "Encoding.self": lambda rng, axes: encoding(), "quiet": FLAG,
    "value": lambda rng, axes: encoding().to_json(), "numbers": built(lambda x: {"a": x}, numbers("N")),
    "columns.target_names": one_of(["a", "b"]), "embedded": one_of((), ((0, 3),)),
    "periodic": one_of(None, [1], ()), "embedding": one_of(PeriodicEmbedding(2, 2)), "sharpness": one_of((1.0, 2.0)),
    "clip": one_of(3.0, np.inf), "like": one_of(None), "judge": one_of(None, lambda progress: 1.0),
    "judge_every": one_of(None, 1),
    "kernel": one_of(mder.process.Kernel(np.ones(2), 0.1, 1.0, 0.1)), "seed": one_of(0, 5), "rows_of_kernel": FOUR,
    "process.rows": FOUR, "trees": TWO, "Process.self": lambda rng, axes: mder.fit_process(np.eye(2), np.eye(2)),
    "Forest.self": lambda rng, axes: mder.fit_forest(np.eye(2), np.eye(2), trees=2),
    "settings": built(dict, one_of(SETTINGS)), "content": lambda rng, axes: hostile_file(rng),
}

# ---- How a valid argument is spoilt.

PLAIN = (None, True, 0, 1, -1, 2.5, "", "text", float("nan"))
ODD = (
    *PLAIN, False, 2, -0.5, 0.5, 1e300, float("inf"), 10**400, 2**70, 1j, b"a", [], [0], [1.5, "a"], [[1], [1, 2]], {},
    {"a": 1}, object(), len, StudentT, slice(None), np.array(None), np.array("a"), np.ones((2, 3)), np.zeros((0, 2)),
    np.float32(0.5), np.int8(2), np.array([1, "a"], object), np.datetime64("2020-01-01"), np.array([0.5, 0.5]),
)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300, 1e38, 1e-300, 1e-40, 5e-324, 1e8, 1e-8)
DTYPES = (int, np.int8, np.uint8, bool, complex, np.float16, ml_dtypes.bfloat16, object, str, "datetime64[s]")
HARMLESS = (np.ndarray.tolist, jnp.asarray, lambda a: a.astype(np.float32), lambda a: a.astype(ml_dtypes.bfloat16))
SHAPES = (
    lambda a: a[None], lambda a: a[..., None], lambda a: a[0], lambda a: a[..., 0], lambda a: a[:0], lambda a: a[:1],
    lambda a: a[..., :0], lambda a: a[..., :1], lambda a: np.concatenate([a, a]), np.ravel, np.transpose, np.sum,
    lambda a: np.concatenate([a, a[..., :1]], -1), lambda a: np.stack([a, a]), lambda a: a[[0] * 4],
)
JSON = (*PLAIN, [], {}, [0], {"a": 1}, 2**70, 1e308, "inf", "nan", -5, [[[]]], ["a", "b"], 3, "x" * 999, [2] * 9999)
TEXTS = ("", "[]", "1", "null", "{", "[" * 99_999, '{"kind": NaN}', '{"a": ' * 9999, "9" * 9999, '{"kind": "a"}')
# fmt: on


def pick(rng, values):
    return values[rng.integers(len(values))]


def with_values(rng, array):
    """The array with one entry, or all of them, something special."""
    array = np.array(array)
    with np.errstate(over="ignore"):
        array[tuple(rng.integers(array.shape)) if array.size and rng.random() < 0.7 else ...] = pick(rng, SPECIAL)
    return array


def spoilt(rng, name, value, draw):
    """Another value for the argument, and whether it is as good as the first; `draw` makes one of other axes."""
    chance = rng.random()
    if name == "content" or (name == "self" and not isinstance(value, StudentT | Mixture)):
        return value, True
    if isinstance(value, bool):
        return pick(rng, PLAIN), False
    if isinstance(value, NIW | NIG | StudentT | Mixture) and (chance < 0.7 or name == "self"):
        if chance < 0.2 and name != "self":
            return draw(), False
        if chance < 0.3:
            return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), value), True
        leaves, structure = jax.tree.flatten(value)
        place = rng.integers(len(leaves))
        leaves[place] = jnp.asarray(with_values(rng, leaves[place]))
        return jax.tree.unflatten(structure, leaves), False
    if isinstance(value, np.ndarray) and chance < 0.85:
        with contextlib.suppress(IndexError, ValueError, OverflowError), warnings.catch_warnings(action="ignore"):
            if chance < 0.25:
                return with_values(rng, value), False
            if chance < 0.4:
                return pick(rng, HARMLESS)(value), True
            return (value.astype(pick(rng, DTYPES)) if chance < 0.5 else pick(rng, SHAPES)(value)), False
    if isinstance(value, list | tuple | dict) and len(value) and (chance < 0.6 or name == "settings"):
        parts = dict(value) if isinstance(value, dict) else dict(enumerate(value))
        key = pick(rng, list(parts))
        parts[key] = spoilt(rng, "", parts[key], draw)[0]
        make = type(value)._make if hasattr(value, "_fields") else type(value)
        return (parts if isinstance(value, dict) else make(parts.values())), False
    if name == "key" and chance < 0.5:
        return pick(rng, [jax.random.PRNGKey(0), jax.random.split(jax.random.key(0)), jnp.zeros(2)]), False
    users = callable(value) or name == "reduce"  # a function whose errors would be its own
    odd = [other for other in ODD if not (users and callable(other))]
    return copy.copy(pick(rng, odd)), False


# ---- Model files, sealed with the right checksum whatever they hold.


@functools.cache
def saved():
    """Document and arrays of a model."""
    with tempfile.TemporaryDirectory() as folder:
        fitted().save(pathlib.Path(folder, "model.mder"))
        return persistence.load(pathlib.Path(folder, "model.mder"))


def hostile_file(rng):
    """The bytes of a model file in which a field or an array is another, or the text is no document at all."""
    document, arrays = copy.deepcopy(saved())
    for _ in range(rng.integers(1, 3)):
        if rng.random() < 0.3:
            name = pick(rng, list(arrays))
            array, keep = spoilt(rng, "", arrays.pop(name), None)[0], rng.random() < 0.9
            if keep and isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
                arrays[name if rng.random() < 0.9 else name + "/a"] = np.ascontiguousarray(array)
        else:
            inside: Any = document
            while True:
                key = pick(rng, list(inside) if isinstance(inside, dict) else range(len(inside)))
                if not isinstance(inside[key], dict | list) or not inside[key] or rng.random() < 0.3:
                    break
                inside = inside[key]
            inside[key] = pick(rng, JSON)
            if rng.random() < 0.2:
                del inside[key]
    text, chance = json.dumps(document), rng.random()
    if chance < 0.1:
        text = pick(rng, TEXTS)
    elif chance < 0.2:  # a name twice, of which the last one counts
        text = f'{text[:-1]}, "members": {json.dumps(pick(rng, JSON))}}}'
    head = {"format": persistence.FORMAT, "sha256": persistence._digest(text, arrays), "document": text}
    content = as_safetensors(arrays, {persistence.DOCUMENT: json.dumps(head)})
    length = pick(rng, [0, 1, 9, len(content), 2**40, 2**63])
    return length.to_bytes(8, "little") + content[8:] if 0.2 < chance < 0.25 else content


def open_model_file(content):
    """A `ModelFileError`, or a model that does what models do."""
    path = pathlib.Path("hostile.mder")
    path.write_bytes(content)
    try:
        model = MDERRegressor.load(path)
        X = np.ones((3, model.n_features_in_))
        with warnings.catch_warnings(action="ignore"):
            y = np.ones_like(model.predict(X))
            model.predict_interval(X), model.predict_quantiles(X)
            with contextlib.suppress(ValueError):  # parameters may be such that there is none
                model.predict_interval(X, joint=True)
            with contextlib.suppress(ValueError):
                model.predict_dist(X), model.plot(X, y)
            with contextlib.suppress(ValueError):
                model.score(X, y)
            model.log_prob(X, y), model.sample_y(X)
            repr(model), str(model.calibration_), model.save("again.mder", model.extra_)
    except ModelFileError:
        raise
    except Exception as error:
        raise AssertionError(f"neither refused nor a model that works: {error!r}") from error
    return y


# ---- The cases, and what comes of them.

# Errors and warnings that are documented of some functions, besides ValueError and TypeError with an own message.
ERRORS = {"Mixture.member": IndexError, "datasets.real": mder.datasets.MissingTableError, "devices": RuntimeError}
ERRORS |= dict.fromkeys(("persistence", "MDERRegressor", "Pipeline", "ensemble", "Ensemble"), OSError)
WARNINGS = ("conformal coverage", "R.2 score is not well-defined", "target .* in every row; leave it out of the fit")
WARNINGS += (
    ".* do(es)? not determine the scale",
    "the scale of the covariance stays as it is",
    "target .* not observed",
)
WARNINGS += (".* rows have no finite prediction", ".* are rows of the fit")
WARNINGS += ("text was read so", "columns left out", ".* of .* rows (is|are|has|have) ")
# Arguments that are always given, since the shape of the result depends on them.
SHAPING = ("shape", "points", "levels", "n", "nu_max")
SECONDS = 120
OWN = tuple(os.path.dirname(module.__file__) + os.sep for module in (mder, sklearn))  # whose messages are good


class Target(NamedTuple):
    """A function with the kinds of its arguments, the shapes it promises, and notes."""

    name: str
    function: Any
    kinds: dict[str, Any]
    shapes: list[str]
    notes: set[str]

    @property
    def share(self):
        return min([float(note) for note in self.notes if note[0].isdigit()], default=1.0)


class Case(NamedTuple):
    """Arguments, the axes they were drawn for, whether they are valid, and whether they are to be traced."""

    axes: dict[str, tuple[int, ...]]
    arguments: dict[str, Any]
    valid: bool
    traced: bool


@functools.cache
def targets():
    """The functions by name."""
    found = {}
    for line in FUNCTIONS.strip().splitlines():
        names, kinds, shapes, notes = (part.strip() for part in line.split("|"))
        family, _, last = names.rpartition(".")
        own = dict(pair.split(":") for pair in kinds.split())
        for short in last.split(","):
            name = f"{family}.{short}".lstrip(".")
            home = {"fuzz": sys.modules[__name__], "Region": mder.estimator, "Prediction": mder.estimator}
            home |= {"Encoding": mder.columns, "Pipeline": mder.pipeline}
            function = functools.reduce(getattr, name.removeprefix("fuzz.").split("."), home.get(family, mder))
            drawn = {one: kind_of(one, own.get(one), family or short) for one in arguments_of(function)}
            found[name] = Target(name, function, drawn, shapes.split("/"), set(notes.split()))
    return found


def arguments_of(function):
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: one for name, one in inspect.signature(function).parameters.items() if one.kind not in several}


def kind_of(argument, word, family):
    if word is not None:
        return KINDS[word] if word in KINDS else numbers(word)
    return KINDS.get(f"{family}.{argument}") or KINDS[argument]


def draw_case(target, seed, number, quick=False):
    rng = np.random.default_rng([seed, zlib.crc32(target.name.encode()), number])
    traced, valid = "concrete" not in target.notes and (rng.random() < 0.5 or quick), "picky" not in target.notes
    needed = next((int(note[2:]) for note in target.notes if note.startswith("n=")), None)
    axes = draw_axes(rng, needed, usual=quick or (not traced and (target.share < 1 or rng.random() < 0.95)))
    arguments = {
        name: target.kinds[name](rng, axes)
        for name, known in arguments_of(target.function).items()
        if known.default is inspect.Parameter.empty or name in SHAPING or rng.random() < 0.5
    }
    for name in rng.permutation(list(arguments))[: rng.choice(3, p=[0.15, 0.65, 0.2])].tolist():
        draw = functools.partial(target.kinds[name], rng, draw_axes(rng))
        arguments[name], harmless = spoilt(rng, name, arguments[name], draw)
        valid &= harmless
    return Case(axes, arguments, valid, traced)


def call(target, case):
    if not case.traced:
        return target.function(**case.arguments)
    traced = {name: value for name, value in case.arguments.items() if can_be_traced(value)}
    rest = {name: value for name, value in case.arguments.items() if name not in traced}
    return jax.eval_shape(lambda arrays: target.function(**rest, **arrays), traced)


def can_be_traced(value):
    leaves = jax.tree.leaves(value) if isinstance(value, NIW | NIG | StudentT | Mixture) else [value]
    kinds = (jnp.number, jnp.bool_, jax.dtypes.prng_key)
    return all(hasattr(x, "shape") and any(jnp.issubdtype(x.dtype, kind) for kind in kinds) for x in leaves)


def outcome(target, case):
    """The word "returned", the word "refused", or what is wrong."""
    arrays = [leaf for leaf in jax.tree.leaves(case.arguments) if isinstance(leaf, np.ndarray) and leaf.dtype != object]
    before = [array.tobytes() for array in arrays]
    faulthandler.dump_traceback_later(SECONDS)  # shows where it hangs, and waits
    try:
        with warnings.catch_warnings(action="error"):
            for message in WARNINGS:
                warnings.filterwarnings("ignore", message)
            result = call(target, case)
    except Exception as error:
        said = wrong_error(target, error) or (f"valid arguments refused: {error}" if case.valid else "refused")
    else:
        said = wrong_result(target, case, result) or "returned"
    faulthandler.cancel_dump_traceback_later()
    return said if [array.tobytes() for array in arrays] == before else "an input was changed"


def wrong_error(target, error):
    """What is wrong with it, if anything: its kind, or that its message was not written by whom the user called."""
    if isinstance(error, tuple(kind for name, kind in ERRORS.items() if target.name.startswith(name))):
        return ""
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    code = last.tb_frame.f_code
    raised = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    own = raised and code.co_filename.startswith(OWN)
    good = own and isinstance(error, ValueError | TypeError) and len(str(error)) >= 10
    return "" if good else f"{type(error).__name__}: {error}"


def wrong_result(target, case, result):
    leaves = [leaf for leaf in jax.tree.leaves(result) if hasattr(leaf, "dtype")]
    if "any" not in target.notes and not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
        return f"not floats: {[leaf.dtype for leaf in leaves]}"
    promised = target.shapes[len(target.shapes) > 1 and case.arguments.get("reduce", True) is False].split()
    expected, found = [shape(letters, case.axes) for letters in promised], [leaf.shape for leaf in leaves]
    if case.valid and promised and expected != found:
        return f"shapes {found} instead of {expected}"
    checked = case.valid and not case.traced and "any" not in target.notes
    finite = not checked or all(np.isfinite(np.asarray(leaf, np.float64)).all() for leaf in leaves)
    return "" if finite else f"not finite: {result}"


def run_cases(name, seed, cases, quick=False):
    """What came of the cases of one function: how often each word, seconds, and the faults by their numbers."""
    start = time.perf_counter()
    said = {case: outcome(targets()[name], draw_case(targets()[name], seed, case, quick)) for case in cases}
    faults = {case: word for case, word in said.items() if word not in ("returned", "refused")}
    if not quick:
        jax.clear_caches()  # or else the programs of a long run take gigabytes
    counts = np.array([len(said), *(list(said.values()).count(word) for word in ("returned", "refused")), len(faults)])
    return name, counts, time.perf_counter() - start, faults


def configure(strict):
    """Prepare a process: a folder to write in, and JAX as the tests have it or as it comes."""
    os.chdir(tempfile.mkdtemp(prefix="fuzz-"))
    jax.config.update("jax_compilation_cache_dir", os.getcwd())  # or else `use_compilation_cache` would
    jax.config.update("jax_traceback_filtering", "off")
    if strict:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_numpy_dtype_promotion", "strict")
        jax.config.update("jax_numpy_rank_promotion", "raise")


def plan(cases, only=None):
    """How many cases each function has."""
    shares = {name: target.share for name, target in targets().items() if only in (None, name)}
    return {name: max(2, round(cases * share / sum(shares.values()))) for name, share in shares.items()}


def run_all(cases, seed, only=None):
    """All cases, the even and the odd ones in a process each; a table, and the number of faults."""
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # half the time to compile
    spawn = multiprocessing.get_context("spawn")
    pools = [ProcessPoolExecutor(1, spawn, configure, (strict,)) for strict in (True, False)]
    planned = plan(cases, only)
    jobs = [
        pool.submit(run_cases, name, seed, range(start, planned[name], 2))
        for name in planned
        for start, pool in enumerate(pools)
    ]
    counts, seconds, faults = ({name: empty() for name in planned} for empty in (lambda: np.zeros(4, int), float, dict))
    for done, job in enumerate(as_completed(jobs), 1):
        name, found, spent, wrong = job.result()
        counts[name], seconds[name], faults[name] = counts[name] + found, seconds[name] + spent, faults[name] | wrong
        if sys.stderr.isatty():
            print(f"\r{done} of {len(jobs)} parts, {sum(map(len, faults.values()))} faults", end=" ", file=sys.stderr)
    for pool in pools:
        pool.shutdown()
    print(f"{'function':38}{'cases':>8}{'returned':>10}{'refused':>9}{'faults':>8}{'seconds':>9}")
    for name in planned:
        print("{:38}{:8}{:10}{:9}{:8}{:9.1f}".format(name, *counts[name], seconds[name]))
        for case, word in list(faults[name].items())[:5]:
            print(f"    --only {name} --case {case}: {' '.join(word.split()):.300}")
    total = sum(counts.values())
    print("{:38}{:8}{:10}{:9}{:8}{:9.1f}".format("all", *total, sum(seconds.values())))
    return total[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=targets(), metavar="NAME", help="one function")
    parser.add_argument("--case", type=int, metavar="K", help="one case of it")
    options = parser.parse_args()
    if options.case is None:
        return int(run_all(options.cases, options.seed, options.only) > 0)
    configure(strict=options.case % 2 == 0)
    target = targets()[options.only]
    case = draw_case(target, options.seed, options.case)
    print(case, outcome(target, case), sep="\n")
    print(call(target, case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
