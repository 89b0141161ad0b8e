"""What intervals cover after a choice by the rows whose errors make them.

``python benchmarks/interval_choice.py [CASE ...] [--draws 40] [--out FILE]``. With n rows, `AutoKernelRegressor` picks among many
candidates; a draw has a function of three out of five inputs, with noise, and 1000 new rows. On the table energy, which needs its
folder in ``RFTEACH_DATA``, a draw is a split as in ``benchmarks/intervals.py``, and its training rows are halved:
`RandomFeatureRidge` is fitted to one half, with a bandwidth for each input learned from the same half or from the other one.
For each draw the file keeps the shares that intervals of 50 % and of 90 % hold, and the size of errors at new rows, as the root
of their mean square, over that of errors at rows left out. What is measured is kept as it comes, and not measured again.
"""

import warnings
from functools import partial
from pathlib import Path

import numpy as np

from sklearn.exceptions import ConvergenceWarning

import records
from intervals import split
from rfteach.auto import AutoKernelRegressor
from rfteach.bandwidth import learn_bandwidth
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures

RESULTS = Path(__file__).resolve().parent / "results" / "interval_choice.json"
LEVELS = 0.5, 0.9


def judged(model, X, y):
    """By level the share of new rows that are covered; and ``size``, see above."""
    ends = [model.predict_interval(X, level).T for level in LEVELS]
    found = {str(level): float(np.mean((low <= y) & (y <= high))) for level, (low, high) in zip(LEVELS, ends)}
    left = model.left_out_.residuals
    return found | {"size": float(np.mean((model.predict(X) - y) ** 2) ** 0.5 / np.mean(left**2) ** 0.5)}


def candidates(n, seed):
    """Few rows, many candidates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + 1000, 5))
    y = np.sin(3 * X[:, 0] * X[:, 1]) + X[:, 2] ** 2 + 0.3 * rng.normal(size=len(X))
    return judged(AutoKernelRegressor().fit(X[:n], y[:n]), X[n:], y[n:])


def bandwidths(own, seed):
    """A half of the training rows of energy, with the bandwidths of its ``own`` rows or of the other half."""
    X, y, X_test, y_test = split("energy", seed)
    halves = np.array_split(np.random.default_rng(seed).permutation(len(X)), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = learn_bandwidth(X[halves[own]], y[halves[own]], criterion="evidence", per_input=True, random_state=seed)
    features = RandomFourierFeatures(bandwidth=found.bandwidth, n_components=1000, form="paired", random_state=seed)
    return judged(RandomFeatureRidge(features).fit(X[halves[1]], y[halves[1]]), X_test, y_test)


CASES = {"n = 60": partial(candidates, 60), "n = 100": partial(candidates, 100),
         "energy, bandwidths of its rows": partial(bandwidths, True), "energy, of other rows": partial(bandwidths, False)}


def main(argv=None):
    """Measure what is not in the file yet, and print means and standard errors."""
    parser = records.command_line("Coverage after a choice.", RESULTS, "case", CASES, "--draws", 40, "draws of each case")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/interval_choice.py", "cases")
    for case in args.cases or CASES:
        kept = record["cases"].setdefault(case, {})
        for seed in range(args.draws):
            if str(seed) not in kept:
                kept[str(seed)] = CASES[case](seed)
        records.written(args.out, record, "cases", CASES)
        for level in map(str, LEVELS):
            shares = np.array([run[level] for run in kept.values()])
            print(f"{case}, {level}: {shares.mean():.3f} ± {shares.std() / len(shares)**0.5:.3f}", flush=True)
    return record


if __name__ == "__main__":
    main()
