"""What every study of the paper must make of its results."""

import collections
import json
import pathlib

import numpy as np

from experiments.harness.claims import FAILS, HOLDS, IN_PART, OPEN, by_id
from tests.support.figures import drawn

LEDGER = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "ledger.json"
CLAIMS = collections.Counter(row["study"] for row in json.loads(LEDGER.read_text()))


def claims_and_figures(study, results):
    """The claims by id, as many as in the ledger, and the figures by name, which all show numbers; each is checked."""
    name = study.__name__.rpartition(".")[2]
    claims, figures = by_id(study.claims(results)), study.plot(results)
    assert all(id.startswith(f"{name}.") for id in claims)
    assert name not in CLAIMS or len(claims) == CLAIMS[name], "the ledger has another number of claims"
    for claim in claims.values():
        assert claim.where and claim.claim and claim.statistic and claim.ours
        assert claim.verdict in (HOLDS, IN_PART, FAILS, OPEN)
    assert set(figures) == set(study.CAPTIONS)
    for label, figure in figures.items():
        for axes in figure.axes:
            assert drawn(axes).size > 0 and np.isfinite(drawn(axes)).all(), label
            assert axes.get_ylabel() or axes.get_title(), label
    return claims, figures
