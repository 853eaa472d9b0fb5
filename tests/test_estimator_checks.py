"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mder_jax import MDERRegressor

SMALL = MDERRegressor((16,), embedding=None, members=2, max_iter=40, learning_rate_init=0.03, random_state=0)
SMALL.set_params(early_stopping=False)

# A row of weight k and k copies of it agree to 1e-6, held in test_workflow.py: the check asks for 1e-7.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "networks are computed in single precision"}


@pytest.mark.filterwarnings("ignore")  # the checks warn on purpose
@parametrize_with_checks([SMALL], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_check(estimator, check):
    check(estimator)
