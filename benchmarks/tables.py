"""Nine regression tables: accuracy and fit time beside peers.

``python benchmarks/tables.py [TABLE ...] [--methods M ...] [--splits 10] [--out FILE]`` needs the
folder of the tables in ``RFTEACH_DATA``. Each split takes a random tenth of the rows for testing;
inputs and target are standardised by the other nine tenths. What is measured is kept in the file as
it comes, by table, method and split, and not measured again; `methods` is where others are added.
"""

import time
import warnings
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from scipy.stats import loguniform, randint, uniform
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

import records
from rfteach.agop import RFMRegressor
from rfteach.auto import AutoKernelRegressor
from rfteach.bandwidth import learn_bandwidth, median_bandwidth
from rfteach.datasets import load_regression
from rfteach.evidence.verdicts import corrected_error
from rfteach.features import RandomFourierFeatures
from rfteach.srfe import SRFERegressor
from rfteach.harfe_regressor import HARFERegressor
from rfteach.rbf import NystroemFeatures, RBFRegressor
from rfteach.feature_ridge import RandomFeatureRidge

RESULTS = Path(__file__).resolve().parent / "results" / "tables.json"
TABLES = ["yacht", "energy", "concrete", "airfoil-self-noise", "wine-quality-red", "kin8nm", "power-plant",
          "naval-propulsion-plant", "protein-tertiary-structure"]


def fourier(X, y, seed):
    """2000 paired features, bandwidth 1/2, 1 or 2 times the median by leave-one-out with 500, penalty too."""
    median = median_bandwidth(X)

    def fit(factor, n_components):
        features = RandomFourierFeatures("gaussian", factor * median, n_components, form="paired", random_state=seed)
        return RandomFeatureRidge(features).fit(X, y)

    return fit(min((0.5, 1.0, 2.0), key=lambda factor: fit(factor, 500).cv_errors_.min()), 2000)


def fourier_learned(X, y, seed, criterion="evidence"):
    """Paired features, 4000 up to 2000 rows, else 2000, a bandwidth for each input by the evidence of 1000 rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best after its 100 iterations will do
        bandwidth = learn_bandwidth(X, y, criterion=criterion, per_input=True, random_state=seed).bandwidth
    return RandomFeatureRidge(RandomFourierFeatures(
        bandwidth=bandwidth, n_components=4000 if len(X) <= 2000 else 2000, form="paired", random_state=seed)).fit(X, y)


def fourier_learned_loo(X, y, seed):
    """The same, learned by the leave-one-out error."""
    return fourier_learned(X, y, seed, "loo")


def rbf_network(X, y, seed):
    """1000 centres from the data, median bandwidth, penalty by leave-one-out."""
    return RBFRegressor(n_centers=1000, bandwidth="median", random_state=seed).fit(X, y)


def nystroem(X, y, seed):
    """1000 landmarks, median bandwidth, penalty by leave-one-out."""
    return RandomFeatureRidge(NystroemFeatures(n_components=1000, random_state=seed)).fit(X, y)


def srfe(X, y, seed):
    """1000 features of two inputs each, basis pursuit with a tolerance by cross-validation, on at most 1000 rows."""
    rows = np.random.default_rng(seed).permutation(len(X))[:1000]
    return SRFERegressor(1000, random_state=seed).fit(X[rows], y[rows])


def harfe(X, y, seed):
    """2000 features of two inputs each, all other settings by default."""
    return HARFERegressor(2000, n_folds=None, random_state=seed).fit(X, y)


def linear(X, y, seed):
    """scikit-learn's RidgeCV, penalty by leave-one-out."""
    return RidgeCV(np.logspace(-6, 6, 25)).fit(X, y)


def kernel_ridge(X, y, seed):
    """scikit-learn's KernelRidge on at most 5000 rows, width and penalty by 3 folds on 1500 of them."""
    rows = np.random.default_rng(seed).permutation(len(X))[:5000]
    median = median_bandwidth(X)
    grid = {"gamma": [0.5 / (f * median) ** 2 for f in (0.25, 0.5, 1, 2)], "alpha": np.logspace(-6, 0, 7)}
    search = GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3, refit=False, scoring="neg_mean_squared_error")
    best = search.fit(X[rows[:1500]], y[rows[:1500]]).best_params_
    return KernelRidge(kernel="rbf", **best).fit(X[rows], y[rows])


def gaussian_process(X, y, seed):
    """scikit-learn's GaussianProcessRegressor with a width for each input; up to 1400 rows."""
    if len(X) > 1400:
        return None
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1, (1e-8, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # widths of inputs without effect end at their bound
        return GaussianProcessRegressor(kernel, random_state=seed).fit(X, y)


def boosting(X, y, seed):
    """scikit-learn's HistGradientBoostingRegressor, up to 2000 trees, stopped by a tenth of the rows."""
    return HistGradientBoostingRegressor(
        learning_rate=0.05, max_iter=2000, early_stopping=True, n_iter_no_change=20, random_state=seed).fit(X, y)


def boosting_default(X, y, seed):
    """scikit-learn's HistGradientBoostingRegressor as it comes."""
    return HistGradientBoostingRegressor(random_state=seed).fit(X, y)


def boosting_tuned(X, y, seed):
    """scikit-learn's HistGradientBoostingRegressor, the best of 30 random settings by 3 folds."""
    settings = {"learning_rate": loguniform(0.02, 0.3), "max_iter": randint(100, 1000), "max_leaf_nodes": randint(8, 64),
                "min_samples_leaf": randint(2, 40), "l2_regularization": loguniform(1e-4, 10), "max_features": uniform(0.4, 0.6)}
    model = HistGradientBoostingRegressor(random_state=seed, early_stopping=False)
    return RandomizedSearchCV(model, settings, n_iter=30, cv=3, random_state=seed, n_jobs=2).fit(X, y)


def auto(X, y, seed, time_budget=None):
    """AutoKernelRegressor, no setting."""
    return AutoKernelRegressor(time_budget=time_budget, random_state=seed).fit(X, y)


def auto_in_ten_seconds(X, y, seed):
    """The same with a time budget of 10 seconds."""
    return auto(X, y, seed, time_budget=10)


def learned_metric(X, y, seed):
    """RFMRegressor, no setting."""
    return RFMRegressor(random_state=seed).fit(X, y)


def xrfm(X, y, seed):
    """xRFM 0.4.5 (``pip install xrfm==0.4.5``), the best of 12 random settings by its validation on a fifth of the rows.

    With more than 20 000 training rows, all 12 are fitted to a quarter of them, and the best three to all.
    """
    from xrfm import xRFM

    rng = np.random.default_rng(seed)
    held, rows = np.split(rng.permutation(len(X)), [len(X) // 5])
    X_held, y_held = torch.from_numpy(X[held]).float(), torch.from_numpy(y[held, None]).float()

    def setting():
        model = {"kernel": str(rng.choice(["l2", "l1"])), "bandwidth": float(loguniform(1, 50).rvs(random_state=rng)),
                 "exponent": float(rng.uniform(0.7, 1.3)), "diag": bool(rng.random() < 0.5)}
        fit = {"reg": float(loguniform(1e-5, 1).rvs(random_state=rng)), "iters": 4}
        if model["kernel"] == "l1":
            model["exponent"] = min(model["exponent"], 1.0)
        return {"model": model, "fit": fit}

    def fitted(setting, rows):
        """The error on the rows held out, the setting, the model."""
        found = xRFM(setting, max_leaf_size=5000, device="cpu", random_state=seed, verbose=False)
        found.fit(torch.from_numpy(X[rows]).float(), torch.from_numpy(y[rows, None]).float(), X_held, y_held)
        error = (torch.as_tensor(found.predict(X_held)).reshape(-1) - y_held[:, 0]).square().mean()
        return float(error), setting, found

    settings = [setting() for _ in range(12)]
    if len(rows) > 20_000:
        ranked = sorted((fitted(setting, rows[: len(rows) // 4]) for setting in settings), key=itemgetter(0))
        settings = [setting for _, setting, _ in ranked[:3]]
    return OnTensors(min((fitted(setting, rows) for setting in settings), key=itemgetter(0))[2])


class OnTensors:
    """Predictions for arrays by a model that takes tensors in single precision."""

    def __init__(self, model):
        self.model = model

    def predict(self, X):
        return np.asarray(self.model.predict(torch.from_numpy(X).float()), float).reshape(-1)


METHODS = {"AutoKernelRegressor": auto, "AutoKernelRegressor, 10 s": auto_in_ten_seconds, "RFMRegressor": learned_metric,
           "HistGradientBoosting, as it comes": boosting_default, "HistGradientBoosting, tuned": boosting_tuned, "xRFM, tuned": xrfm,
           "RandomFeatureRidge": fourier, "RandomFeatureRidge, learned bandwidths": fourier_learned,
           "RandomFeatureRidge, learned by leave-one-out": fourier_learned_loo,
           "RBFRegressor": rbf_network, "NystroemFeatures + ridge": nystroem, "SRFERegressor": srfe,
           "HARFERegressor": harfe, "linear ridge": linear, "KernelRidge": kernel_ridge,
           "GP-ARD": gaussian_process, "HistGradientBoosting": boosting}


def split(table, seed):
    """Training and test part, standardised by the training part."""
    X, y = load_regression(table, return_X_y=True, download=False)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    spread = X[train].std(0)
    X = (X - X[train].mean(0)) / np.where(spread > 0, spread, 1)
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def measure(method, X, y, X_test, y_test, seed):
    """Root mean squared error in standard deviations of the target, and seconds to fit; None if not feasible."""
    start = time.perf_counter()
    model = METHODS[method](X, y, seed)
    seconds = time.perf_counter() - start
    if model is None:
        return None
    error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    return {"rmse": float(f"{error:.4g}"), "seconds": float(f"{seconds:.3g}")}


def summary(record):
    """Mean, standard error over overlapping splits, median seconds by table and method, as rows in Markdown."""
    lines = ["| table | " + " | ".join(METHODS) + " |", "|---|" + "--:|" * len(METHODS)]
    for table in record["tables"]:
        cells = []
        for method in METHODS:
            runs = [run for run in record["tables"][table].get(method, {}).values() if run]
            if not runs:
                cells.append("–")
                continue
            errors = np.array([run["rmse"] for run in runs])
            spread = corrected_error(errors, 9, 1) if len(errors) > 1 else np.nan
            cells.append(f"{errors.mean():.3f} ± {spread:.3f} ({np.median([r['seconds'] for r in runs]):.2g} s)")
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    usual = [method for method in METHODS if method != "xRFM, tuned" or find_spec("xrfm")]
    record = records.measure_tables(argv, "Accuracy and fit time on nine regression tables.", RESULTS, TABLES, METHODS, 10,
                                    split, measure, usual=usual)
    print("\n" + summary(record))


if __name__ == "__main__":
    main()
