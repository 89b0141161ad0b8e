"""Intervals on nine regression tables: what they cover, how wide they are, and what they take, beside peers.

``python benchmarks/intervals.py [TABLE ...] [--methods M ...] [--splits 10] [--out FILE]`` needs the folder of the tables in
``RFTEACH_DATA``, and for two of the methods MAPIE 1 (``pip install mapie``). Splits are those of ``benchmarks/tables.py``, with
at most 1200 test rows, which two of the methods hold beside all the others. All but the last three are intervals around one and
the same fit: `RandomFeatureRidge` on 1000 paired features, with a bandwidth for each input that was learned before. Ten splits of
a small table have too few test rows to tell its coverage: kept are, of `RandomFeatureRidge`, as many as have 3600 together,
``--splits`` 120 on yacht, 48 on energy, 35 on concrete, 24 on airfoil-self-noise and 23 on wine-quality-red.
"""

import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning

import records
from tables import TABLES, auto, gaussian_process
from tables import split as split_of_tables
from rfteach.bandwidth import learn_bandwidth
from rfteach.evidence.verdicts import corrected_error
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.uncertainty import interval_score, jackknife_plus, posterior

RESULTS = Path(__file__).resolve().parent / "results" / "intervals.json"
LEVELS = (0.5, 0.9, 0.99)
_FITS, _TESTED = {}, 1200


def split(table, seed):
    """Training and test part, of which the first 1200 rows are enough."""
    X, y, X_test, y_test = split_of_tables(table, seed)
    return X, y, X_test[:_TESTED], y_test[:_TESTED]


def ridge(X, y, seed):
    """The fit that several methods share, with the seconds that it took."""
    key = len(X), float(y[0]), seed
    if key not in _FITS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the best after its 100 iterations will do
            bandwidth = learn_bandwidth(X, y, criterion="evidence", per_input=True, n_subsample=700, random_state=seed).bandwidth
        features = RandomFourierFeatures(bandwidth=bandwidth, n_components=1000, form="paired", random_state=seed)
        start = time.perf_counter()
        model = RandomFeatureRidge(features).fit(X, y)
        _FITS.clear()
        _FITS[key] = model, time.perf_counter() - start
    return _FITS[key]


def left_out(X, y, T, seed):
    """RandomFeatureRidge.predict_interval: left-out residuals over a scale that is learned from them."""
    model, seconds = ridge(X, y, seed)
    return [model.predict_interval(T, level) for level in LEVELS], seconds


def law(X, y, T, seed):
    """posterior: the normal law of a new target, its penalty by evidence."""
    model, _ = ridge(X, y, seed)
    A, B = (model.features_.transform(Z) for Z in (X, T))
    found = posterior(A, y)
    mean, std = found.predict(B, return_std=True)
    half = (std**2 + found.noise) ** 0.5
    return [np.c_[mean - z * half, mean + z * half] for z in norm.ppf((1 + np.array(LEVELS)) / 2)], 0.0


def plus(X, y, T, seed):
    """jackknife_plus in closed form, by parts of the test rows."""
    model, seconds = ridge(X, y, seed)
    A, B = (model.features_.transform(Z) for Z in (X, T))
    parts = np.array_split(B, max(1, len(A) * len(B) // 10**7))
    return [np.concatenate([jackknife_plus(A, y, model.alpha_, part, level) for part in parts]) for level in LEVELS], seconds


def _mapie(X, y, T, seed, cv):
    from mapie.regression import CrossConformalRegressor

    model, _ = ridge(X, y, seed)
    fixed = RandomFeatureRidge(model.features_, model.alpha_)
    found = CrossConformalRegressor(fixed, confidence_level=list(LEVELS), method="plus", cv=cv).fit_conformalize(X, y)
    ends = found.predict_interval(T)[1]
    return [ends[:, :, j] for j in range(len(LEVELS))], 0.0


def mapie_jackknife(X, y, T, seed):
    """MAPIE's jackknife+, n refits with the features and the penalty; up to 700 rows."""
    return _mapie(X, y, T, seed, -1) if len(X) <= 700 else None


def mapie_cv(X, y, T, seed):
    """MAPIE's CV+, ten refits with the features and the penalty."""
    return _mapie(X, y, T, seed, 10)


def process(X, y, T, seed):
    """scikit-learn's GaussianProcessRegressor with a width for each input, its normal law; up to 1400 rows."""
    model = gaussian_process(X, y, seed)
    if model is None:
        return None
    mean, std = model.predict(T, return_std=True)
    return [np.c_[mean - z * std, mean + z * std] for z in norm.ppf((1 + np.array(LEVELS)) / 2)], 0.0


def boosting_quantiles(X, y, T, seed):
    """scikit-learn's HistGradientBoostingRegressor for both quantiles of each level, other settings as they come."""
    ends = []
    for level in LEVELS:
        fits = [HistGradientBoostingRegressor(loss="quantile", quantile=(1 + sign * level) / 2, random_state=seed).fit(X, y)
                for sign in (-1, 1)]
        ends.append(np.sort(np.stack([fit.predict(T) for fit in fits], 1), 1))
    return ends, 0.0


def auto_left_out(X, y, T, seed):
    """AutoKernelRegressor.predict_interval."""
    start = time.perf_counter()
    model = auto(X, y, seed)
    seconds = time.perf_counter() - start
    return [model.predict_interval(T, level) for level in LEVELS], seconds


METHODS = {"RandomFeatureRidge": left_out, "law of functions": law, "jackknife+": plus, "MAPIE, jackknife+": mapie_jackknife,
           "MAPIE, CV+": mapie_cv, "AutoKernelRegressor": auto_left_out, "GP-ARD": process,
           "HistGradientBoosting, quantiles": boosting_quantiles}


def measure(method, X, y, X_test, y_test, seed):
    """By level coverage, mean width and interval score, targets of variance one; seconds in all, and of the fit alone."""
    ridge(X, y, seed)
    start = time.perf_counter()
    found = METHODS[method](X, y, X_test, seed)
    seconds = time.perf_counter() - start
    if found is None:
        return None
    ends, fit = found
    own = fit if method in ("RandomFeatureRidge", "jackknife+") else 0.0  # made before
    out = {"seconds": float(f"{seconds + own:.3g}"), "fit": float(f"{fit:.3g}")}
    for level, (low, high) in zip(LEVELS, (e.T for e in ends)):
        values = np.mean((low <= y_test) & (y_test <= high)), np.mean(high - low), interval_score(low, high, y_test, level).mean()
        out[str(level)] = [float(f"{v:.4g}") for v in values]
    return out


def summary(record, level=0.9):
    """By table and method mean coverage, width and score, with the corrected standard error of the score, as Markdown."""
    lines = [f"| {level:.0%} | " + " | ".join(METHODS) + " |", "|---|" + "--:|" * len(METHODS)]
    for table in record["tables"]:
        cells = []
        for method in METHODS:
            runs = np.array([run[str(level)] for run in record["tables"][table].get(method, {}).values() if run])
            if not len(runs):
                cells.append("–")
                continue
            covered, width, score = runs.mean(0)
            spread = corrected_error(runs[:, 2], 9, 1) if len(runs) > 1 else np.nan
            cells.append(f"{covered:.3f}, {width:.3g}, {score:.3g} ± {spread:.2g}")
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    usual = [method for method in METHODS if "MAPIE" not in method or find_spec("mapie")]
    record = records.measure_tables(argv, "Intervals on nine regression tables.", RESULTS, TABLES, METHODS, 10,
                                    split, measure, usual=usual)
    print("\n" + "\n\n".join(summary(record, level) for level in LEVELS))


if __name__ == "__main__":
    main()
