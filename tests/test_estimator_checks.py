"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mder_jax import MDERRegressor

SMALL = MDERRegressor(hidden_layer_sizes=(16,), members=2, max_iter=60, learning_rate_init=0.02, random_state=0)


@pytest.mark.filterwarnings("ignore")  # the checks warn on purpose
@parametrize_with_checks([SMALL])
def test_scikit_learn_check(estimator, check):
    import jax

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        check(estimator)
