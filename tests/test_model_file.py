"""Model files: bit-equal after loading, whole or not at all, and safe to open whatever is in them."""

import json
import math
import os
import signal
import struct
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save as as_safetensors

import mder_jax
from mder_jax import MDERRegressor, persistence
from mder_jax.links import niw_link
from mder_jax.persistence import ModelFileError
from tests.support.cases import long, with_mlp


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    X, Y = random.normal(size=(80, 3)), random.normal(size=(80, 2))
    fitted = MDERRegressor((8,), members=3, max_iter=3, nu_max=float("inf"), beside=None, random_state=0).fit(X, Y)
    return fitted.calibrate(random.normal(size=(60, 3)).clip(-2, 2), random.normal(size=(60, 2)))


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.mder"
    model.save(path)
    return path.read_bytes()


def opened(tmp_path, content):
    path = tmp_path / "other.mder"
    path.write_bytes(content)
    return MDERRegressor.load(path)


def test_what_is_loaded_is_what_was_saved(model, tmp_path):
    path = tmp_path / "model.mder"
    model.save(path, extra={"columns": ["a", "é"]})
    loaded = MDERRegressor.load(path)
    X = np.random.default_rng(1).normal(size=(50, 3))
    for method in ("predict", "predict_uncertainty", "predict_interval", "predict_quantiles", "sample_y"):
        jax.tree.map(np.testing.assert_array_equal, getattr(loaded, method)(X), getattr(model, method)(X))
    assert loaded.get_params() == model.get_params()
    assert loaded.extra_ == {"columns": ["a", "é"]}
    assert str(loaded.calibration_) == str(model.calibration_)
    assert persistence.load(path)[0]["members"] == 3
    assert sorted(os.listdir(tmp_path)) == ["model.mder"]
    loaded.save(tmp_path / "again.mder", loaded.extra_)
    ours, theirs = (persistence.load(tmp_path / name)[1] for name in ("model.mder", "again.mder"))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_another_number_of_devices_gives_the_same_bits(model, content, tmp_path):
    path = tmp_path / "model.mder"
    path.write_bytes(content)
    script = (
        "import jax, numpy as np; from mder_jax import MDERRegressor; assert jax.device_count() == 1;"
        f"model = MDERRegressor.load({str(path)!r});"
        "print(model.predict(np.ones((2, 3))).tobytes().hex())"
    )
    alone = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == model.predict(np.ones((2, 3))).tobytes().hex()


def test_exported_predictor_needs_only_jax(model, tmp_path):
    path = tmp_path / "model.export"
    model.export(path)
    expected = model.predict_uncertainty(np.eye(3)[[0, 1, 2, 0, 1]])
    script = f"""
import sys, jax, numpy as np
from jax import export
call = jax.jit(export.deserialize(bytearray(open({str(path)!r}, "rb").read())).call)
found = call(np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]])
assert call(np.ones((9, 3), np.float32))["mean"].shape == (9, 2)
assert not {{"mder_jax", "flax", "sklearn", "optax"}} & set(sys.modules)
np.savez({str(tmp_path / "found.npz")!r}, **found)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    with np.load(tmp_path / "found.npz") as found:
        for name in ("mean", "aleatoric", "epistemic", "total"):
            np.testing.assert_allclose(found[name], getattr(expected, name), rtol=1e-5, atol=1e-6)


def exported(model, path):
    model.export(path)
    return jax.export.deserialize(bytearray(path.read_bytes())).call


def assert_moments(found, expected):
    for name in ("mean", "aleatoric", "epistemic", "total"):
        np.testing.assert_allclose(found[name], getattr(expected, name), rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("transform", [None, "log"])
@pytest.mark.filterwarnings("ignore:.*(far outside the range of training|no value in)")
def test_an_exported_predictor_fills_gaps_and_knows_far_rows(transform, tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 4)) * [1.0, 100.0, 1e-3, 1.0] + [0.0, 5000.0, 0.0, 7.0]
    X[::4, 1], X[:, 3] = np.nan, 7.0
    X[5, 0] = 1e6  # a mistyped cell
    Y = np.exp(random.normal(size=(80, 2)))
    model = MDERRegressor((8,), members=3, max_iter=3, target_transform=transform, beside=None, random_state=0).fit(
        X, Y
    )
    call, single = exported(model, tmp_path / "model.jaxexp"), np.float32(X)
    assert_moments(call(single), model.predict_uncertainty(single))
    new = single[:24].copy()
    for k, value in enumerate((1e2, -1e2, 1e6, -1e6, 3e38, -3e38)):
        new[4 * k : 4 * k + 4][np.eye(4, dtype=bool)] = value
    near = single[:8].copy()
    near[:4, 0], near[4:, 2] = np.float32([30.0, 40.0, 45.0, 60.0]), np.float32([3e-3, 4e-3, -4e-3, np.nan])
    for rows in (new, near, np.full((1, 4), np.nan, np.float32)):
        expected = model.predict_uncertainty(rows)
        assert np.isfinite(expected.total).all()
        assert_moments(call(rows), expected)
    novelty = model.encoding_.encode(near, quiet=True).novelty
    assert 0 < novelty[1] < novelty[3] < 1e6 and 0 < novelty[6] < 1e6 and model.encoding_.columns[1].indicator


def test_an_exported_predictor_of_categories_takes_encoded_columns(tmp_path):
    random, row = np.random.default_rng(0), np.arange(80)
    kinds, plots = np.array(["a", "b"])[row % 2], [f"p{k}" for k in row % 16]
    frame = pd.DataFrame({"kind": kinds, "plot": plots, "id": row, "x": random.normal(size=80)})
    with pytest.warns(UserWarning, match=r"columns left out: 'id' \(a number of its own in every row\)"):
        model = MDERRegressor((8,), members=3, max_iter=3, beside=None, random_state=0).fit(
            frame, random.normal(size=(80, 2))
        )
    encoded = model.encoding_.encode(frame).X
    assert encoded.shape == (80, 4)
    assert_moments(exported(model, tmp_path / "model.jaxexp")(np.float32(encoded)), model.predict_uncertainty(frame))
    model.save(tmp_path / "model.mder")
    again = MDERRegressor.load(tmp_path / "model.mder")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_columns_that_were_left_out_are_not_read_by_an_exported_predictor(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(80), "a": random.normal(size=80), "wet": np.arange(80) % 3 == 0})
    with pytest.warns(UserWarning, match=r"columns left out: 'id' \(a number of its own in every row\)"):
        model = MDERRegressor((8,), members=3, max_iter=3, beside=None, random_state=0).fit(
            frame, random.normal(size=(80, 2))
        )
    rows = frame.to_numpy(np.float32)
    rows[:, 0] = np.nan
    assert_moments(exported(model, tmp_path / "model.jaxexp")(rows), model.predict_uncertainty(frame))


def test_columns_named_by_numbers_have_no_names_after_loading_either(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(80, 3)), columns=[3, 1, 2])
    model = MDERRegressor((8,), members=3, max_iter=3, beside=None, random_state=0).fit(
        frame, random.normal(size=(80, 2))
    )
    model.save(tmp_path / "model.mder")
    again = MDERRegressor.load(tmp_path / "model.mder")
    assert not hasattr(model, "feature_names_in_") and not hasattr(again, "feature_names_in_")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def changed(content, change):
    """The file with another header, as somebody would write it who knows the format but not the checksum."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    head = json.loads(header["__metadata__"]["mder_jax"])
    change(head)
    header["__metadata__"]["mder_jax"] = json.dumps(head)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def resealed(model, tmp_path, change, arrays_change=lambda arrays: None):
    """A file whose checksum is right and whose content is not."""
    path = tmp_path / "sealed.mder"
    model.save(path)
    document, arrays = persistence.load(path)
    change(document)
    arrays_change(arrays)
    persistence.save(path, document, arrays)
    return path


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("empty", lambda content: b"", "not a model file, or cut short"),
        ("text", lambda content: b"a,b,c\n1,2,3\n" * 10, "not a model file"),
        ("pickle", lambda content: b"\x80\x04\x95" + b"x" * 100, "not a model file"),
        ("zip", lambda content: b"PK\x03\x04" + b"\0" * 100, "not a model file"),
        ("cut", lambda content: content[:-1], "damaged or cut short"),
        ("half", lambda content: content[: len(content) // 2], "cut short|not a model file"),
        ("longer", lambda content: content + b"\0", "damaged"),
        ("newer", lambda content: changed(content, lambda head: head.update(format=99)), "newer mder_jax.*--upgrade"),
        ("bit", lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], "checksum"),
        ("document", lambda content: changed(content, lambda head: head.update(document="{}")), "checksum"),
        ("no dict", lambda content: changed(content, lambda head: head.update(document=[])), "not a model file"),
    ],
)
def test_other_files_are_refused(name, make, message, content, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        opened(tmp_path, make(content))


def test_a_header_that_promises_too_much_is_not_believed(tmp_path):
    text = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    with pytest.raises(ModelFileError):
        opened(tmp_path, struct.pack("<Q", len(text)) + text)
    with pytest.raises(ModelFileError, match="not a model file"):
        opened(tmp_path, struct.pack("<Q", 1 << 62) + b"{}" * 50)
    nested = b"[" * 200_000
    with pytest.raises(ModelFileError, match="not a model file"):
        opened(tmp_path, struct.pack("<Q", len(nested)) + nested)


def test_a_huge_file_is_not_read(content, tmp_path):
    path = tmp_path / "huge.mder"
    path.write_bytes(content)
    os.truncate(path, persistence.MODEL_BYTES + 1)  # sparse: takes no disk
    with pytest.raises(ModelFileError, match="are not read"):
        MDERRegressor.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(kind="other"),
        lambda document: document.update(members=1 << 60),
        lambda document: document["design"].update(widths=[1 << 40]),
        lambda document: document["design"].update(widths=["8"]),
        lambda document: document["design"].update(activation="__import__"),
        lambda document: document["design"].update(targets=3),
        lambda document: document["design"].update(r="one"),
        lambda document: document["design"].update(relative="yes"),
        lambda document: document["settings"].update(more=1),
        lambda document: document.pop("scale"),
        lambda document: document.update(scale=[1.0]),
        lambda document: document.update(calibration={"fit": {}}),
        lambda document: document["calibration"]["fit"].update(level="most"),
        lambda document: document["calibration"]["checks"][0].update(interval=[1.0]),
        lambda document: document["fitted"].update(n_features_in_=2),
        lambda document: document["fitted"].update(flat_="no"),
        lambda document: document["fitted"].update(target_names_=["a"]),
        lambda document: document["fitted"].update(n_rows_="many"),
        lambda document: document.update(feature_names="abc"),
        lambda document: document["design"].update(r=-1.0),
        lambda document: document["design"].update(nu_max=1.0),
        lambda document: document["design"].update(widths=[8] * 100_000),  # to build so many layers would take hours
    ],
)
def test_files_that_do_not_fit_together(change, model, tmp_path):
    with pytest.raises(ModelFileError):
        MDERRegressor.load(resealed(model, tmp_path, change))


def test_arrays_that_do_not_fit(model, tmp_path):
    def nothing(document):
        return None

    for change in (
        lambda arrays: arrays.pop("inputs/std"),
        lambda arrays: arrays.update({"inputs/std": np.zeros(3)}),
        lambda arrays: arrays.update({"targets/mean": np.full(2, np.nan)}),
        lambda arrays: arrays.update({"params/dense_0/kernel": np.zeros((3, 3, 9), np.float32)}),
        lambda arrays: arrays.update({"params/extra/kernel": np.zeros(1, np.float32)}),
        lambda arrays: arrays.update({"params/strange": np.zeros(1, np.float32)}),
        lambda arrays: arrays.update({"inputs/std": np.ones(3, bool)}),
        lambda arrays: arrays.update({"joint_scores": np.ones((2, 2))}),
        lambda arrays: arrays.update({"target_scores": np.ones((2, 3))}),
    ):
        with pytest.raises(ModelFileError):
            MDERRegressor.load(resealed(model, tmp_path, nothing, change))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, "9" * 10_000])
def test_a_document_that_is_none_is_refused_though_its_checksum_is_right(text, tmp_path):
    head = {"format": persistence.FORMAT, "sha256": persistence._digest(text, {}), "document": text}
    path = tmp_path / "sealed.mder"
    path.write_bytes(as_safetensors({}, {persistence.DOCUMENT: json.dumps(head)}))
    for read in (persistence.load, MDERRegressor.load):
        with pytest.raises(ModelFileError, match=r"is damaged|is not a model file"):
            read(path)


def test_ten_thousand_mutated_files(content, tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "fuzzed.mder"
    for _ in range(10_000):
        mutated = bytearray(content)
        kind = random.integers(4)
        if kind == 0:
            mutated = mutated[: random.integers(len(mutated))]
        elif kind == 1:
            for place in random.integers(len(mutated), size=random.integers(1, 9)):
                mutated[place] = random.integers(256)
        elif kind == 2:  # in the header, where it hurts
            for place in random.integers(3000, size=random.integers(1, 9)):
                mutated[place] = random.integers(256)
        else:
            place = random.integers(len(mutated))
            mutated[place:place] = random.bytes(random.integers(1, 50))
        if bytes(mutated) == content:
            continue
        path.write_bytes(mutated)
        with pytest.raises(ModelFileError):
            MDERRegressor.load(path)


def test_a_full_disk_leaves_the_old_file(model, content, tmp_path, monkeypatch):
    path = tmp_path / "model.mder"
    path.write_bytes(content)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*model\.mder'"):
        model.save(path)
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["model.mder"]


SAVER = """
import os, signal, sys
from mder_jax import MDERRegressor

def count(frame, event, _):
    global calls
    calls += event in ("call", "c_call")
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)

model = MDERRegressor.load(sys.argv[1])
calls, last = 0, -1
for _ in range(2):
    sys.setprofile(count)
    model.save(sys.argv[1])
    sys.setprofile(None)
    print("saved", flush=True)
    calls, last = 0, 1 + int(float(sys.argv[2]) * calls)
"""


@pytest.mark.parametrize("kills", [1, long(20)])
def test_killed_while_it_saves_there_is_always_a_whole_file(kills, content, tmp_path):
    """Killed after so many of the calls that saving takes, which the process has counted before."""
    path = tmp_path / "model.mder"
    path.write_bytes(content)
    for share in np.random.default_rng(0).uniform(size=kills):
        done = subprocess.run([sys.executable, "-c", SAVER, str(path), str(share)], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (-signal.SIGKILL, "saved\n"), done.stderr
        assert MDERRegressor.load(path).members == 3


@pytest.fixture(scope="module")
def earlier(model):
    return with_mlp(model)


def as_version_2(document):
    assert document["version"] == 3 and document["design"].pop("periodic") is None
    document["version"] = 2
    del document["settings"]["embedding"]


def test_a_file_of_version_2_has_an_mlp(earlier, tmp_path):
    """It predicts as relu layers and the link do by hand, and cannot be trained further."""
    loaded = MDERRegressor.load(resealed(earlier, tmp_path, as_version_2))
    assert loaded.predictor_.design == earlier.predictor_.design
    params = loaded.predictor_.params
    assert set(params) == {"dense_0", "dense_1", "dense_2"} and all(len(layer) == 2 for layer in params.values())
    X = np.random.default_rng(1).normal(size=(7, 3))
    hidden = np.stack([loaded.predictor_.inputs.forward(X)] * 3).astype(np.float64)
    for number in range(3):
        kernel, bias = (np.float64(params[f"dense_{number}"][part]) for part in ("kernel", "bias"))
        hidden = hidden @ kernel + bias[:, None]
        hidden = np.maximum(hidden, 0) if number < 2 else hidden
    niw = niw_link(jnp.asarray(hidden), n=2, nu_max=math.inf, relative=True)
    targets = loaded.predictor_.targets
    np.testing.assert_allclose(
        loaded.predict(X), targets.mean + targets.std * np.asarray(niw.mu).mean(axis=0), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(loaded.predict_interval(X), earlier.predict_interval(X))
    loaded.save(tmp_path / "again.mder")
    np.testing.assert_array_equal(MDERRegressor.load(tmp_path / "again.mder").predict(X), loaded.predict(X))
    with pytest.raises(ValueError, match="those of files of earlier versions, an mlp, cannot be trained further"):
        loaded.set_params(warm_start=True).fit(X, X[:, :2])


def test_a_network_of_ones_own_in_a_file_of_version_2_is_trained_further(tmp_path):
    random = np.random.default_rng(0)
    X, Y = random.normal(size=(60, 2)), random.normal(size=(60, 1))
    network = mder_jax.mlp((4,), mder_jax.num_outputs(1), link=lambda raw: niw_link(raw, n=1))
    settings = {"members": 2, "max_iter": 2, "random_state": 0, "warm_start": True}
    model = MDERRegressor(**settings, network=network).fit(X, Y)
    path = resealed(model, tmp_path, as_version_2)
    loaded = MDERRegressor.load(path, network=network)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.calibrate(X, Y, cv=2).calibration_ is not None
    loaded.fit(X, Y)


def test_layers_of_a_file_of_version_0_1_0_have_other_names(earlier, tmp_path):
    def rename(arrays):
        for name in [name for name in arrays if name.startswith("params/dense_")]:
            _, layer, part = name.split("/")
            arrays[f"params/layers_{3 * int(layer.removeprefix('dense_'))}/{part}"] = arrays.pop(name)

    loaded = MDERRegressor.load(resealed(earlier, tmp_path, as_version_2, rename))
    jax.tree.map(np.testing.assert_array_equal, loaded.predictor_.params, earlier.predictor_.params)


def test_a_file_that_does_not_tell_how_the_factor_is_packed_has_it_as_in_the_paper(model, tmp_path):
    path = resealed(model, tmp_path, lambda document: document["design"].pop("relative"))
    assert model.predictor_.design.relative and not MDERRegressor.load(path).predictor_.design.relative


def test_saving_again_keeps_what_the_file_held_besides(model, tmp_path):
    model.save(tmp_path / "first.mder", extra={"columns": ["a"]})
    MDERRegressor.load(tmp_path / "first.mder").save(tmp_path / "second.mder")
    assert MDERRegressor.load(tmp_path / "second.mder").extra_ == {"columns": ["a"]}
    MDERRegressor.load(tmp_path / "first.mder").save(tmp_path / "third.mder", extra={})
    assert MDERRegressor.load(tmp_path / "third.mder").extra_ == {}


def test_what_could_not_be_read_again_is_not_written(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"the document has 1\d,\d{3},\d{3} bytes; `load` reads at most 16,777,216"):
        model.save(tmp_path / "model.mder", extra={"note": "x" * 17_000_000})
    monkeypatch.setattr(persistence, "MODEL_BYTES", 1000)
    with pytest.raises(ValueError, match=r"the file would have .* bytes; `load` reads at most 1,000"):
        model.save(tmp_path / "model.mder")
    assert not os.listdir(tmp_path)


def test_the_rows_of_the_fit_are_remembered_and_checked(model, tmp_path):
    path = tmp_path / "model.mder"
    model.save(path)
    loaded = MDERRegressor.load(path)
    np.testing.assert_array_equal(loaded.trained_rows_.hashes, model.trained_rows_.hashes)
    assert loaded.trained_rows_.rows == 80 and loaded.trained_rows_.repeats.tolist() == [[1, 80]]
    older = resealed(model, tmp_path, lambda document: document.pop("trained_rows"))
    assert MDERRegressor.load(older).trained_rows_ is None
    for wrong in ({"rows": 0}, {"whole": 2.0}, {"rows": "x"}):
        broken = resealed(model, tmp_path, lambda document, wrong=wrong: document["trained_rows"].update(wrong))
        with pytest.raises(ModelFileError, match="trained rows are inconsistent"):
            MDERRegressor.load(broken)


def test_an_export_says_which_targets_float32_does_not_resolve(tmp_path):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(30, 2)), 2020.5 + 0.001 * random.normal(size=30)
    tiny = MDERRegressor((4,), members=1, max_iter=1, random_state=0)
    with pytest.warns(UserWarning, match=r"target 0 is 2020\.5 ± 0\.00\d+, which float32 does not resolve"):
        tiny.fit(X, y).export(tmp_path / "model.jaxexp")
