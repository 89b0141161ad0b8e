"""What intervals cost: seconds of one thread's processor for fits with and without what they need, and for the first interval.

``python benchmarks/interval_price.py [ESTIMATOR ...] [--rounds 5] [--out FILE]``. Rows are those of Friedman's first function
with ten inputs and noise. In each round, a fit as it comes, `predict` at 1000 new rows, `predict_interval` at the same, which
learns the scale, and a fit that leaves all of that out take turns; medians are kept, and not measured again.
"""

import os

os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}  # before NumPy is loaded

import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import make_friedman1

import records
from rfteach import auto, conjugate, feature_ridge
from rfteach.agop import RFMRegressor
from rfteach.auto import AutoKernelRegressor
from rfteach.centers import CentersRegressor
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.rbf import RBFRegressor

RESULTS = Path(__file__).resolve().parent / "results" / "interval_price.json"
SIZES = 1000, 8000
ESTIMATORS = {"RandomFeatureRidge": RandomFeatureRidge(), "RBFRegressor": RBFRegressor(random_state=0),
              "KernelRidgeRegressor": KernelRidgeRegressor(), "CentersRegressor": CentersRegressor(random_state=0),
              "RFMRegressor": RFMRegressor(), "AutoKernelRegressor": AutoKernelRegressor()}


def one_column(kernel, X, Y, lam, w, rows, **options):
    """`rfteach.conjugate.gram_cg_without` with its first fit only."""
    return conjugate.gram_cg(kernel, X, Y, lam, w, **options), torch.zeros(len(rows), Y.shape[1])


def dropped(self, X, Y, w):
    """In the place of ``_conclude``, which makes something of the rows that were left out."""
    vars(self).pop("_unseen", None)


SPARED = {"RandomFeatureRidge": [(feature_ridge._Kept, "predictions", lambda self: None)],
          "RBFRegressor": [(feature_ridge._Kept, "predictions", lambda self: None), (RandomFeatureRidge, "_conclude", dropped)],
          "KernelRidgeRegressor": [(conjugate, "gram_cg_without", one_column)],
          "CentersRegressor": [(CentersRegressor, "_held", lambda self, X, Y, left: None)],
          "AutoKernelRegressor": [(auto, "_LAST", 0)]}


def without_intervals(model):
    """A context in which a fit neither keeps nor makes what only intervals need."""
    context, name = ExitStack(), type(model).__name__
    for change in [(type(model), "_conclude", dropped), *SPARED.get(name, [])]:
        context.enter_context(patch.object(*change))
    return context


def measure(model, n, rounds):
    """Medians over the rounds, in seconds: fit, the same without what intervals need, prediction, first intervals."""
    X, y = make_friedman1(n + 1000, noise=1.0, random_state=0)
    found = []
    for _ in range(rounds):
        times = [time.process_time()]
        fitted = clone(model).fit(X[:n], y[:n])
        times.append(time.process_time())
        fitted.predict(X[n:])
        times.append(time.process_time())
        fitted.predict_interval(X[n:])
        times.append(time.process_time())
        with without_intervals(model):
            clone(model).fit(X[:n], y[:n])
        times.append(time.process_time())
        found.append(np.diff(times))
    return {name: float(f"{value:.3g}") for name, value in zip(("fit", "predict", "interval", "without"), np.median(found, 0))}


def main(argv=None):
    """Measure what is not in the file yet, and print it."""
    parser = records.command_line("What intervals cost.", RESULTS, "estimator", ESTIMATORS, "--rounds", 5, "fits of each kind")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    record = records.opened(args.out, "python benchmarks/interval_price.py", "estimators")
    for name in args.estimators or ESTIMATORS:
        kept = record["estimators"].setdefault(name, {})
        for n in SIZES:
            if str(n) not in kept:
                kept[str(n)] = {"rounds": args.rounds, **measure(ESTIMATORS[name], n, args.rounds)}
                records.written(args.out, record, "estimators", ESTIMATORS)
            print(f"{name:22}{n:6,} rows", kept[str(n)], flush=True)
    return record


if __name__ == "__main__":
    main()
