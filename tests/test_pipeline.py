"""A Pipeline ends in the same numbers as its steps by hand; scorers find the model in it, against scikit-learn."""

import inspect
import pickle

import jax
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline as make_plain_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mder_jax import MDERRegressor, metrics
from mder_jax.pipeline import Pipeline, make_pipeline

SCORERS = (metrics.nll_scorer, metrics.crps_scorer, metrics.energy_scorer, metrics.rmse_scorer)
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"soil": RNG.choice(["clay", "loam"], 60), "depth": RNG.normal(size=60).clip(-1.5, 1.5)})
FRAME.loc[::7, "depth"] = np.nan
Y = RNG.normal(size=(60, 2)) + FRAME[["depth"]].fillna(0.0).to_numpy()
Y[3, 0] = Y[31, 1] = np.nan
Y[33] = np.nan
WEIGHTS = RNG.uniform(0.5, 2.0, 60)
TRAIN, TEST = slice(0, 30), slice(30, 60)


def small(**settings):
    return MDERRegressor((8,), members=2, max_iter=5, random_state=0, embedding=None, beside=None, **settings)


def preprocessing():
    """Its result is sparse."""
    numbers = make_plain_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    kinds = [("kinds", OneHotEncoder(), ["soil"]), ("numbers", numbers, ["depth"])]
    return ColumnTransformer(kinds, sparse_threshold=1.0)


def dense(steps):
    return np.asarray(steps.transform(FRAME[TEST]).todense())


@pytest.fixture(scope="module")
def pipeline():
    return make_pipeline(preprocessing(), small()).fit(FRAME[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def plain():
    """scikit-learn's own, with the same model in a pipeline inside."""
    steps = preprocessing().set_params(sparse_threshold=0.0)
    return make_plain_pipeline(steps, make_plain_pipeline("passthrough", small())).fit(FRAME[TRAIN], Y[TRAIN])


CALLS = {
    "predict": {"return_cov": True},
    "predict_uncertainty": {},
    "predict_interval": {"coverage": 0.8},
    "predict_quantiles": {"quantiles": [0.2]},
    "predict_dist": {},
    "sample_y": {"n_samples": 3},
    "log_prob": {"y": Y[TEST]},
    "score": {"y": Y[TEST], "sample_weight": WEIGHTS[TEST]},
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_are_those_of_the_model_behind_the_steps(pipeline, name):
    X = dense(pipeline[0])
    assert X.shape == (30, 4)
    found, expected = (
        getattr(one, name)(rows, **CALLS[name]) for one, rows in ((pipeline, FRAME[TEST]), (pipeline[-1], X))
    )
    for mine, its in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_every_method_of_the_model_that_takes_rows_is_there():
    for name, method in vars(MDERRegressor).items():
        if inspect.isfunction(method) and name[0] != "_" and "X" in inspect.signature(method).parameters:
            own = inspect.signature(getattr(Pipeline, name)).parameters
            assert name == "fit" or list(own) == list(inspect.signature(method).parameters), name
    assert Pipeline.log_prob.__qualname__ == "Pipeline.log_prob"
    assert Pipeline.log_prob.__doc__.startswith("As `MDERRegressor.log_prob`, with X as it is before the steps")


def test_all_from_one_run_figures_and_export(pipeline, tmp_path):
    prediction = pipeline.predict_all(FRAME[TEST])
    np.testing.assert_array_equal(prediction.uncertainty().mean, pipeline.predict(FRAME[TEST]))
    assert pipeline.plot(FRAME[TEST], Y[TEST], kind="predicted_observed", target=1).get_xlabel() == "predicted y1"
    pipeline.export(tmp_path / "model.jaxexp")
    artefact = jax.export.deserialize(bytearray((tmp_path / "model.jaxexp").read_bytes()))
    mean = artefact.call(dense(pipeline[0]).astype(np.float32))["mean"]
    np.testing.assert_allclose(mean, pipeline.predict(FRAME[TEST]), atol=1e-5)


def test_calibrate_returns_the_pipeline_with_conformal_intervals():
    fitted = make_pipeline(preprocessing(), small()).fit(FRAME[TRAIN], Y[TRAIN])
    assert fitted.calibrate(FRAME[TEST], Y[TEST]) is fitted
    assert fitted[-1].calibration_.fit.rows == 29  # one has no target
    inside = metrics.coverage(Y[TEST], fitted.predict_interval(FRAME[TEST], coverage=0.5))
    assert (inside.coverage >= 0.5).all()


def test_a_model_file_needs_the_fitted_steps_again(pipeline, tmp_path):
    pipeline.save(tmp_path / "model.mder", extra={"unit": "m"})
    same = Pipeline.load(tmp_path / "model.mder", pipeline.steps[:-1])
    np.testing.assert_array_equal(same.log_prob(FRAME[TEST], Y[TEST]), pipeline.log_prob(FRAME[TEST], Y[TEST]))
    assert same[-1].extra_ == {"unit": "m"}
    with pytest.raises(NotFittedError, match="ColumnTransformer instance is not fitted"):
        Pipeline.load(tmp_path / "model.mder", [("steps", preprocessing())])
    with pytest.raises(TypeError, match=r"pairs \(name, fitted transformer\), such as pipeline.steps\[:-1\]; got Colu"):
        Pipeline.load(tmp_path / "model.mder", pipeline[0])
    other = Pipeline.load(tmp_path / "model.mder", [("scale", StandardScaler().fit(Y))])
    with pytest.raises(ValueError, match="X has 2 features, but MDERRegressor is expecting 4"):
        other.predict(Y)
    restored = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(restored.predict(FRAME[TEST]), pipeline.predict(FRAME[TEST]))


def test_clone_parameters_and_search():
    model = make_pipeline(preprocessing(), small())
    assert list(model.named_steps) == ["columntransformer", "mderregressor"]
    copy = clone(model).set_params(mderregressor__r=2.0)
    assert type(copy) is Pipeline and (copy[-1].r, model[-1].r) == (2.0, 1.0)
    assert model.get_params()["columntransformer__kinds__sparse_output"] is True
    search = GridSearchCV(model, {"mderregressor__max_iter": [1, 5]}, cv=2, scoring=metrics.nll_scorer)
    search.fit(FRAME[TRAIN], Y[TRAIN])
    assert type(search.best_estimator_) is Pipeline
    for number, epochs in enumerate([1, 5]):
        by_hand = [
            clone(model)
            .set_params(mderregressor__max_iter=epochs)
            .fit(FRAME.iloc[rows], Y[rows])
            .log_prob(FRAME.iloc[held], Y[held])
            for rows, held in KFold(2).split(Y[TRAIN])
        ]
        np.testing.assert_allclose(
            search.cv_results_["mean_test_score"][number], np.mean([np.mean(p) for p in by_hand])
        )
    found = metrics.nll_scorer(search, FRAME[TEST], Y[TEST])
    assert found == metrics.nll_scorer(search.best_estimator_, FRAME[TEST], Y[TEST])


def test_parameters_of_fit_reach_the_step_they_name():
    model = make_pipeline(StandardScaler(), small())
    model.fit(Y[:3], Y[:3] + 1, mderregressor__target_names=["a", "b"], standardscaler__sample_weight=[1.0, 0.0, 0.0])
    assert model[-1].target_names_ == ["a", "b"] and model[0].mean_.tolist() == Y[0].tolist()


@pytest.mark.parametrize("weights", [(), (WEIGHTS[TEST],)])
def test_rows_to_validate_with_go_through_the_steps(weights):
    """Also through those of an outer pipeline; the model is that of steps and model fitted by hand."""
    model = make_pipeline(preprocessing(), small())
    model.fit(FRAME[TRAIN], Y[TRAIN], mderregressor__validation=(FRAME[TEST], Y[TEST], *weights))
    steps = preprocessing().set_params(sparse_threshold=0.0).fit(FRAME[TRAIN])
    X, later = (steps.transform(FRAME[rows]) for rows in (TRAIN, TEST))
    by_hand = small().fit(X, Y[TRAIN], validation=(later, Y[TEST], *weights))
    np.testing.assert_array_equal(model[-1].validation_curve_, by_hand.validation_curve_)
    outer = Pipeline([("first", preprocessing()), ("inner", make_pipeline(StandardScaler(), small()))])
    outer.fit(FRAME[TRAIN], Y[TRAIN], inner__mderregressor__validation=(FRAME[TEST], Y[TEST], *weights))
    np.testing.assert_allclose(outer[-1][-1].validation_curve_, by_hand.validation_curve_, rtol=1e-4)
    with pytest.raises(ValueError, match=r"validation must be \(X, y\) or \(X, y, sample_weight\); got 3"):
        model.fit(FRAME[TRAIN], Y[TRAIN], mderregressor__validation=3)


def test_what_does_not_fit_is_named(pipeline):
    with pytest.raises(TypeError, match=r"the last step must be an MDERRegressor; 'ridge' is Ridge\. For other models"):
        make_pipeline(StandardScaler(), Ridge())
    with pytest.raises(TypeError, match="the last step must be an MDERRegressor; 'columntransformer' is"):
        pipeline[:-1].predict_interval(FRAME)
    with pytest.raises(ValueError, match="needs steps, the last of them an MDERRegressor; got none"):
        make_pipeline()
    with pytest.raises(NotFittedError, match="Pipeline instance is not fitted"):
        make_pipeline(StandardScaler(), small()).predict_interval(Y)
    with pytest.raises(NotFittedError, match="Pipeline"):
        make_pipeline(StandardScaler(), small()).save("nowhere.mder")


def test_a_pipeline_may_be_one_step_or_end_in_another(pipeline):
    alone = make_pipeline(small()).fit(dense(pipeline[0]), np.nan_to_num(Y[TEST]))
    outer = Pipeline([("skip", "passthrough"), ("inner", pipeline)])
    np.testing.assert_array_equal(outer.predict(FRAME[TEST]), pipeline.predict(FRAME[TEST]))
    assert alone.predict_interval(dense(pipeline[0])).lower.shape == (30, 2)


# ---- Scorers


@pytest.mark.parametrize("scorer", SCORERS, ids=str)
def test_scorers_look_through_pipelines_and_searches(pipeline, plain, scorer):
    model = pipeline[-1]
    expected = scorer(model, dense(pipeline[0]), Y[TEST])
    assert scorer(pipeline, FRAME[TEST], Y[TEST]) == expected
    np.testing.assert_allclose(scorer(plain, FRAME[TEST], Y[TEST]), expected)  # the same seed and the same columns
    search = GridSearchCV(plain, {})
    search.best_estimator_ = plain
    np.testing.assert_allclose(scorer(search, FRAME[TEST], Y[TEST]), expected)


def test_scores_are_the_means_of_what_the_model_says_of_rows(pipeline):
    y, weights = Y[TEST], WEIGHTS[TEST]
    seen = ~np.isnan(y).all(axis=1)
    assert seen.sum() == 29
    log_prob = pipeline.log_prob(FRAME[TEST], y)[seen]
    with jax.enable_x64(True):
        prediction = pipeline.predict_dist(FRAME[TEST])
        crps, energy = (np.asarray(one(y, prediction, reduce=False)) for one in (metrics.crps, metrics.energy_score))
    cells = np.broadcast_to(weights[:, None], y.shape)[~np.isnan(y)]
    for w, c, given in ((None, None, None), (weights[seen], cells, weights)):
        found = [scorer(pipeline, FRAME[TEST], y, sample_weight=given) for scorer in SCORERS]
        assert all(type(value) is float for value in found)
        np.testing.assert_allclose(found[0], np.average(log_prob, weights=w))
        np.testing.assert_allclose(found[1], -np.average(crps[~np.isnan(y)], weights=c))
        np.testing.assert_allclose(found[2], -np.average(energy[seen], weights=w))


@pytest.mark.parametrize("weights", [None, WEIGHTS[TEST]])
@pytest.mark.parametrize("columns", [1, 2])
def test_rmse_is_scikit_learns_for_any_regressor(columns, weights):
    X, y = WEIGHTS[TEST, None], np.nan_to_num(Y[TEST, :columns])
    for model in (Ridge(), make_plain_pipeline(StandardScaler(), Ridge()), TransformedTargetRegressor(Ridge())):
        model.fit(X, y if columns == 2 else y[:, 0])
        expected = make_scorer(
            lambda *pair, **w: np.sqrt(mean_squared_error(*pair, multioutput="raw_values", **w)).mean()
        )
        np.testing.assert_allclose(
            metrics.rmse_scorer(model, X, y, sample_weight=weights),
            -expected(model, X, y, **({} if weights is None else {"sample_weight": weights})),
        )


def test_rmse_leaves_out_what_was_not_observed(pipeline):
    mean = pipeline.predict(FRAME[TEST])
    by_target = [
        np.sqrt(mean_squared_error(y[~np.isnan(y)], m[~np.isnan(y)])) for y, m in zip(Y[TEST].T, mean.T, strict=True)
    ]
    np.testing.assert_allclose(metrics.rmse_scorer(pipeline, FRAME[TEST], Y[TEST]), -np.mean(by_target))
    only_first = np.where([True, False], Y[TEST], np.nan)
    np.testing.assert_allclose(metrics.rmse_scorer(pipeline, FRAME[TEST], only_first), -by_target[0])


def test_columns_of_a_frame_are_found_by_name():
    named = pd.DataFrame(Y, columns=["a", "b"])
    for make in (make_pipeline, make_plain_pipeline):
        model = make(StandardScaler(), small()).fit(WEIGHTS[TRAIN, None], named[TRAIN])
        for scorer in SCORERS:
            expected = scorer(model, WEIGHTS[TEST, None], named[TEST])
            assert scorer(model, WEIGHTS[TEST, None], named[TEST][["b", "a"]]) == expected


class Said(BaseEstimator):
    """Says what it is told for each row."""

    def __init__(self, value=-1.0):
        self.value = value

    def fit(self, X, y, sample_weight=None):
        return self

    def log_prob(self, X, y):
        return self.value * X[:, 0]

    def predict(self, X):
        return X[:, 0]


@pytest.mark.parametrize("scoring", [metrics.nll_scorer, {"nll": metrics.nll_scorer, "rmse": metrics.rmse_scorer}])
def test_a_search_hands_weights_to_the_scorer(scoring):
    X, y = np.arange(1.0, 7.0)[:, None], np.zeros(6)
    weights, folds = np.arange(6.0) + 1, KFold(2)
    search = GridSearchCV(Said(), {"value": [-1.0, -2.0]}, cv=folds, scoring=scoring, refit=False)
    search.fit(X, y, sample_weight=weights)
    expected = np.mean([np.average(-X[held, 0], weights=weights[held]) for _, held in folds.split(X)])
    key = "mean_test_nll" if isinstance(scoring, dict) else "mean_test_score"
    np.testing.assert_allclose(search.cv_results_[key], [expected, 2 * expected])


def test_metadata_are_routed_to_a_scorer_that_requests_them():
    X, y, area, folds = np.arange(1.0, 7.0)[:, None], np.zeros(6), np.arange(6.0) + 1, KFold(2)
    held = [rows for _, rows in folds.split(X)]
    weighted = [np.sqrt(np.average(X[rows, 0] ** 2, weights=area[rows])) for rows in held]
    plain = [np.sqrt(np.mean(X[rows, 0] ** 2)) for rows in held]
    with sklearn.config_context(enable_metadata_routing=True):
        for request, name, expected in ((True, "", weighted), ("area", "area", weighted), (False, "", plain)):
            scorer = metrics.rmse_scorer.set_score_request(sample_weight=request)
            model = Said().set_fit_request(sample_weight=request is False)
            for scoring in (scorer, {"score": scorer}):
                params = {name or "sample_weight": area}
                found = cross_validate(model, X, y, scoring=scoring, cv=folds, params=params)
                np.testing.assert_allclose(found["test_score"], -np.array(expected))
        with pytest.raises(UnsetMetadataPassedError, match=r"sample_weight.*not explicitly set"):
            cross_validate(model, X, y, scoring=metrics.rmse_scorer, cv=folds, params={"sample_weight": area})


def test_scorers_can_be_pickled_and_are_not_changed_by_a_request():
    requesting = metrics.nll_scorer.set_score_request(sample_weight=True)
    assert pickle.loads(pickle.dumps(metrics.nll_scorer)) is metrics.nll_scorer
    assert repr(pickle.loads(pickle.dumps(requesting))) == repr(requesting) != repr(metrics.nll_scorer)
    assert metrics.nll_scorer.get_metadata_routing().score.requests == {"sample_weight": None}
    assert clone(GridSearchCV(Ridge(), {}, scoring=requesting)).scoring.get_metadata_routing().score.requests == {
        "sample_weight": True
    }


@pytest.mark.parametrize("scorer", SCORERS[:3], ids=str)
def test_a_scorer_says_what_it_needs(scorer):
    needs = "log_prob" if scorer is metrics.nll_scorer else "predict_dist"
    around = TransformedTargetRegressor(small())
    for model in (around, make_plain_pipeline(StandardScaler(), around)):
        with pytest.raises(
            TypeError, match=rf"must have {needs}, as MDERRegressor has; got TransformedTargetRegressor, "
        ):
            scorer(model, Y, Y)
    with pytest.raises(
        TypeError, match=rf"must have {needs}.*; got GridSearchCV, which has no best_estimator_: fit it"
    ):
        scorer(GridSearchCV(small(), {}), Y, Y)
    with pytest.raises(TypeError, match=rf"must have {needs}, as MDERRegressor has; got Ridge$"):
        scorer(Ridge(), Y, Y)
    with pytest.raises(TypeError, match="as MDERRegressor has; got the class MDERRegressor"):
        scorer(MDERRegressor, Y, Y)


def test_wrong_weights_are_named():
    X = np.ones((3, 1))
    for weights, message in (
        ([1.0, 2.0], r"sample_weight must have shape \(3,\), one per row; got \(2,\)"),
        ([1.0, -1.0, 1.0], "finite, 0 or more; got -1.0 to 1.0"),
        ([1.0, np.nan, 1.0], "finite, 0 or more; got nan"),
    ):
        for scorer in (metrics.nll_scorer, metrics.rmse_scorer):
            with pytest.raises(ValueError, match=message):
                scorer(Said(), X, np.ones(3), sample_weight=weights)
    assert np.isnan(metrics.nll_scorer(Said(), X, np.full(3, np.nan)))
    assert np.isnan(metrics.nll_scorer(Said(), X, np.ones(3), sample_weight=np.zeros(3)))
    assert np.isnan(metrics.rmse_scorer(Said(), X, np.full(3, np.nan)))
    with pytest.raises(ValueError, match=r"y must have shape \(3,\), that of the prediction; got \(4, 1\)"):
        metrics.rmse_scorer(Said(), X, np.ones(4))
