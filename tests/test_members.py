"""`calibrate(X, y, cv="members")`: the rows that members held out, their folds, intervals, coverage and files."""

import copy
import math
import pickle

import jax
import numpy as np
import pytest

from mder_jax import MDERRegressor, cli, persistence
from mder_jax.estimator import _held_out
from mder_jax.estimator._held_out import Before
from mder_jax.estimator.trained_rows import hashes_of, remember
from mder_jax.mixture import Mixture
from mder_jax.persistence import ModelFileError
from tests.support.cases import noisy_line as table

TINY = {"hidden_layer_sizes": (4,), "members": 5, "max_iter": 4, "validation_fraction": 0.2, "random_state": 0}
TINY |= {"embedding": None, "beside": None}
N = 60


@pytest.fixture(scope="module")
def fitted():
    return MDERRegressor(**TINY).fit(*table())


@pytest.fixture(scope="module")
def calibrated(fitted):
    return copy.deepcopy(fitted).calibrate(*table(), cv="members")


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


# ---- Blocks of members share the rows that they hold out


def chosen(rows, members, fraction, groups=None, seed=0):
    hashes = np.arange(rows, dtype=np.uint64)
    return _held_out.choose(np.random.RandomState(seed), hashes, members, fraction, groups=groups)


BLOCKS = {1: [1], 2: [1, 1], 3: [2, 1], 4: [2, 2], 5: [3, 2], 9: [5, 4], 10: [5, 5], 12: [5, 5, 2], 50: 10 * [5]}


def blocks(held):
    """The rows of each block of members, and the sizes of the blocks; members of a block follow each other."""
    starts = [0, *(i for i in range(1, len(held)) if np.any(held[i] != held[i - 1]))]
    return held[starts], np.diff([*starts, len(held)]).tolist()


@pytest.mark.parametrize("members", BLOCKS)
def test_up_to_five_members_hold_out_the_same_rows(members):
    held, sizes = blocks(chosen(100, members, 0.1))
    assert sizes == BLOCKS[members] and np.all(held.sum(axis=1) == 10)
    assert held.sum(axis=0).max() == 1, "no row is held out by two blocks before all are held out"


@pytest.mark.parametrize("rows", [100, 137, 1000])
def test_ten_blocks_share_the_rows(rows):
    """Each row is held out once; where a tenth is no whole number, those that the last blocks need again."""
    (held, sizes), size = blocks(chosen(rows, 50, 0.1)), math.ceil(0.1 * rows)
    assert sizes == 10 * [5] and np.all(held.sum(axis=1) == size)
    counts = held.sum(axis=0)
    assert counts.min() == 1 and counts.sum() == 10 * size and counts.max() == 1 + (10 * size > rows)


def test_rows_are_drawn_at_random_and_blocks_take_them_in_turn():
    assert np.any(chosen(100, 10, 0.1) != chosen(100, 10, 0.1, seed=1))
    twice, sizes = blocks(chosen(100, 50, 0.2))
    assert sizes == 10 * [5] and np.all(twice.sum(axis=0) == 2) and len(np.unique(twice.T, axis=0)) == 5


def test_groups_are_shared_whole():
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 4))
    held, sizes = blocks(chosen(200, 50, 0.1, groups))
    assert sizes == 10 * [5] and np.all(held.sum(axis=0) == 1)
    assert all(set(groups[own]).isdisjoint(groups[~own]) for own in held)


def test_new_rows_of_a_warm_start_are_shared():
    values = np.arange(300.0)[:, None]
    known = remember(values[:200], values[:200])
    hashes, random = hashes_of(known, values, values), np.random.RandomState(0)
    first = _held_out.choose(random, hashes[:200], 50, 0.1)
    second = _held_out.choose(random, hashes, 50, 0.1, before=Before(_held_out.remember(first, hashes[:200]), known))
    assert np.all(second.sum(axis=0) == 5) and np.array_equal(second[:, :200], first)
    assert blocks(second)[1] == 10 * [5]


def test_members_that_held_out_separate_rows_before_still_do():
    """As those of files of earlier versions."""
    values = np.arange(110.0)[:, None]
    known = remember(values[:100], values[:100])
    hashes = hashes_of(known, values, values)
    first = np.repeat(np.eye(10, dtype=bool), 10, axis=1)  # ten rows each
    before = Before(_held_out.remember(first, hashes[:100]), known)
    second = _held_out.choose(np.random.RandomState(0), hashes, 10, 0.1, before=before)
    assert np.array_equal(second[:, :100], first) and np.all(second.sum(axis=1) == 11)
    assert np.all(second.sum(axis=0) == 1)


# ---- Folds, scores and intervals


def held_out_by(model, X, Y):
    """(M, N), by the content of rows."""
    return _held_out.again(model.held_out_, hashes_of(model.trained_rows_, model.encoding_.encode(X).X, Y))


def by_definition(model, X, Y, new, coverage):
    """Ends by every row: |y − mean|/std of the mixture of those members that held it out, and the ranks of CV+."""
    ends = [[], []]
    whole = {id(rows): model.predict_dist(rows) for rows in (X, new)}
    for row, own in enumerate(held_out_by(model, X, Y).T):
        if own.any() and np.isfinite(Y[row]).any():
            here, there = (
                Mixture(jax.tree.map(lambda leaf, own=own: leaf[own], whole[id(rows)].members)) for rows in (X, new)
            )
            std = [np.sqrt(np.diagonal(part.total(), axis1=1, axis2=2)) for part in (here, there)]
            score = np.abs(Y[row] - here.mean()[row]) / std[0][row]
            ends[0].append(there.mean() - score * std[1])
            ends[1].append(there.mean() + score * std[1])
    lower, upper = (np.sort(np.stack(part), axis=0) for part in ends)
    count = len(lower)
    low, high = math.floor(round((1 - coverage) * (count + 1), 9)), math.ceil(round(coverage * (count + 1), 9))
    return lower[low - 1], upper[high - 1]


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_are_those_of_the_definition(fitted, calibrated, coverage):
    X, Y = table()
    new, _ = table(30, seed=1)
    found = calibrated.predict_interval(new, coverage)
    np.testing.assert_allclose(found, by_definition(fitted, X, Y, new, coverage), rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(calibrated.predict_all(new).interval(coverage), found)


def test_a_row_that_several_members_held_out_is_scored_by_their_mixture():
    """Of 32 rows each of two blocks holds out 20: eight rows are held out by both. Folds have two and four members."""
    X, Y = table(33)
    Y[4, 1] = np.nan
    Y[5] = np.nan
    model = MDERRegressor(**TINY | {"members": 4, "validation_fraction": 0.6}).fit(X, Y)
    held, observed = held_out_by(model, X, Y), np.isfinite(Y).any(axis=1)
    assert sorted(set(held[:, observed].sum(axis=0))) == [2, 4]
    plain = copy.deepcopy(model)
    model.calibrate(X, Y, cv="members")
    assert model.calibration_.counts(joint=False).tolist() == [32, 31] and len(model.calibration_.joint_scores) == 31
    assert {len(fold.members) for fold in model.calibration_.folds} == {2, 4}
    new, _ = table(10, seed=1)
    found = model.predict_interval(new, 0.8).lower[:, 0], model.predict_interval(new, 0.8).upper[:, 0]
    wanted = [ends[:, 0] for ends in by_definition(plain, X, Y, new, 0.8)]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(model.predict_uncertainty(new).total, plain.predict_uncertainty(new).total)


def test_nothing_is_trained_and_the_rows_may_come_in_any_order(model, calibrated, monkeypatch):
    monkeypatch.setattr(MDERRegressor, "fit", None)
    X, Y = (part[::-1] for part in table())
    model.calibrate(X, Y, cv="members")
    np.testing.assert_array_equal(model.predict_interval(X), calibrated.predict_interval(X))
    assert str(model.calibration_).splitlines()[-2:] == [
        "cross-conformal, 2 folds that members held out: as a rule intervals hold what they say, or more",
        "these rows also chose when training stopped: no guarantee; the covariance stays as it is",
    ]


def test_groups_weights_and_transformed_targets():
    X, Y = table()
    groups, weights = np.arange(N) // 6, (np.arange(N) > 5) * 1.0
    model = MDERRegressor(**TINY, target_transform="log").fit(X, np.exp(Y), groups=groups, sample_weight=weights)
    model.calibrate(X, np.exp(Y), cv="members")
    assert model.calibration_.counts(joint=False).tolist() == [24, 24]  # two blocks, two groups each
    assert not held_out_by(model, X, Y)[:, :6].any(), "rows of weight 0 are held out by none"
    logs = MDERRegressor(**TINY).fit(X, Y, groups=groups, sample_weight=weights).calibrate(X, Y, cv="members")
    found = np.log(model.predict_interval(X))
    np.testing.assert_allclose(found, logs.predict_interval(X), rtol=1e-4, atol=1e-4)


def test_rows_that_a_member_had_trained_on_before_do_not_count():
    """A fit with validation= trains on all rows; the next one holds out rows that were trained on, but for new ones."""
    X, Y = table(40)
    more = tuple(np.concatenate(parts) for parts in zip((X, Y), table(20, seed=3), strict=True))
    model = MDERRegressor(**TINY, warm_start=True).fit(X, Y, validation=(X, Y)).fit(X, Y)
    assert model.held_out_.trained.all()
    with pytest.raises(ValueError, match="of these 40 rows they held out none that they had not trained on before"):
        model.calibrate(X, Y, cv="members")
    model.fit(*more).calibrate(*more, cv="members")
    assert model.calibration_.counts(joint=False).tolist() == [8, 8]  # two blocks, four new rows each


BAD = [
    ({"early_stopping": False}, {}, "the last fit held out none, since early_stopping was off, or .* validation=; cal"),
    ({}, {"validation": table()}, "held out none, since .* it was given validation=; calibrate with cv=5, or with oth"),
    ({"early_stopping": "last"}, {}, "members held out, each its own; all members held out the same 12 rows; calibr"),
    ({"members": 1}, {}, "each its own; the single member held out the same 12 rows; calibrate with cv=5"),
]


@pytest.mark.parametrize(("settings", "given", "message"), BAD)
def test_a_fit_without_such_rows_is_refused(settings, given, message):
    model = MDERRegressor(**TINY | {"max_iter": 1} | settings).fit(*table(), **given)
    with pytest.raises(ValueError, match=f"cv='members' needs rows that .*{message}"):
        model.calibrate(*table(), cv="members")
    assert model.calibration_ is None


def test_other_arguments_are_refused(model):
    X, Y = table()
    older = copy.copy(model)
    older.trained_rows_ = None
    with pytest.raises(ValueError, match=r"held out; a file of version 0.1.0 does not tell which; calibrate with cv=5"):
        older.calibrate(X, Y, cv="members")
    with pytest.raises(ValueError, match="with cv the rows must be those of the fit; 0 of 60 are; leave out cv"):
        model.calibrate(*table(seed=1), cv="members")
    with pytest.raises(ValueError, match="with cv='members' groups are those of fit; leave out groups"):
        model.calibrate(X, Y, cv="members", groups=np.arange(N))
    for options in ({"separate": True}, {"method": "pull"}):
        with pytest.raises(ValueError, match="method and separate are for factors, of which cv='members' fits none"):
            model.calibrate(X, Y, cv="members", **options)
    with pytest.raises(ValueError, match=r"cv must be an integer, 2 or more, 'members', a list .*; got 'member'"):
        model.calibrate(X, Y, cv="member")


@pytest.mark.parametrize("simulations", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_coverage(simulations):
    """Of many small tables, 80 % intervals: they hold what they say or a little more, as docs/tables.md tells."""
    inside, widths = [], []
    for seed in range(simulations):
        X, Y = table(150, seed=100 + seed)
        settings = {"members": 10, "max_iter": 40, "validation_fraction": 0.3, "random_state": seed}
        model = MDERRegressor((8,), **settings).fit(X, Y)
        new, observed = table(200, seed=10_000 + seed)
        own = model.predict_interval(new, coverage=0.8)
        lower, upper = model.calibrate(X, Y, cv="members").predict_interval(new, coverage=0.8)
        inside.append(((lower <= observed) & (observed <= upper)).mean())
        widths.append((upper - lower).mean() / (own.upper - own.lower).mean())
    error = 0.06 / math.sqrt(simulations)
    assert 0.8 - 4 * error < np.mean(inside) < 0.85 + 4 * error
    assert 0.9 < np.mean(widths) < 1.1


# ---- Files and the command line


def test_files_and_pickle(calibrated, fitted, tmp_path):
    X, _ = table(20, seed=1)
    fitted.save(tmp_path / "plain.mder")
    calibrated.save(tmp_path / "model.mder")
    for same in (MDERRegressor.load(tmp_path / "model.mder"), pickle.loads(pickle.dumps(calibrated))):
        for joint in (False, True):
            ours, theirs = (each.predict_interval(X, joint=joint) for each in (same, calibrated))
            jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert str(same.calibration_) == str(calibrated.calibration_)
    _, arrays = persistence.load(tmp_path / "model.mder")
    _, without = persistence.load(tmp_path / "plain.mder")
    assert set(arrays) - set(without) == {"joint_scores", "target_scores", *(f"fold{k}/scores" for k in range(2))}


@pytest.mark.parametrize("members", [[], [5], [-1], [1, 0], [0, 0], ["0"], 0])
def test_a_file_with_other_members_is_refused(calibrated, tmp_path, members):
    calibrated.save(tmp_path / "model.mder")
    document, arrays = persistence.load(tmp_path / "model.mder")
    document["folds"]["models"][1]["members"] = members
    persistence.save(tmp_path / "other.mder", document, arrays)
    with pytest.raises(ModelFileError, match="a fold must be of some of the 5 members; got"):
        MDERRegressor.load(tmp_path / "other.mder")


def test_the_command_line(tmp_path, capfd):
    X, Y = table()
    text = "\n".join(["x,w,y", *(f"{a},{b},{c}" for (a, b), c in zip(X, Y[:, 0], strict=True))])
    (tmp_path / "t.csv").write_text(text)
    out = tmp_path / "m.mder"
    start = ["train", str(tmp_path / "t.csv"), "--targets", "y", "--out", str(out), "--hidden", "4", "--members", "5"]
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False):
        patch.setattr("mder_jax.use_compilation_cache", lambda: None)
        assert cli.main([*start, "--epochs", "2", "--validation", "0.2", "--calibrate", "members"]) == 0
        printed = capfd.readouterr().out
        assert "cross-conformal, 2 folds that members held out" in printed and "R²" not in printed
        assert [len(fold.scores) for fold in MDERRegressor.load(out).calibration_.folds] == [12] * 2
        with pytest.raises(SystemExit):
            cli.main([*start, "--last", "--calibrate", "members"])
        assert "--calibrate members: --last holds out the same rows for all members" in capfd.readouterr().err
