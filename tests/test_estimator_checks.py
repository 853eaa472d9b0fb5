"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mder_jax import MDERRegressor

SMALL = MDERRegressor((16,), members=2, max_iter=40, learning_rate_init=0.03, early_stopping=False, random_state=0)


@pytest.mark.filterwarnings("ignore")  # the checks warn on purpose
@parametrize_with_checks([SMALL])
def test_scikit_learn_check(estimator, check):
    check(estimator)
