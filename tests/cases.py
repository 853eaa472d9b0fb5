"""How cases of tests are marked."""

import pytest


def long(value):
    """A case left to the long run."""
    return pytest.param(value, marks=pytest.mark.slow)
