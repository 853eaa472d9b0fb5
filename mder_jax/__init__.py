"""Multivariate Deep Evidential Regression in JAX: the paper's equations, and ensembles trained fast.

Names are imported when they are first used, so that the command line can answer before JAX is there. The list of them,
also for type checkers, is `__init__.pyi`.
"""

import lazy_loader

from mder_jax._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
