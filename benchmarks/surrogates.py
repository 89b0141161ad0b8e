"""Surrogates of Sobol's g-function with 20 inputs: error and fit time of projections, peers and our own.

``python benchmarks/surrogates.py [METHOD ...] [--seeds 10] [--out FILE]``. Each seed draws 800 training
and 1000 validation points, uniform on the unit cube; c = (1, 2, 5, 10, 20, 100, 5000, ..., 5000). The
error is the mean square of the residual over the exact variance of the function. What is measured is
kept in the file as it comes, by method and seed, and not measured again. Nothing is compared on left-out rows.
"""

import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

import records
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.datasets import sobol_g, sobol_g_moments
from rfteach.chaos import SparsePCE
from rfteach.harfe_regressor import HARFERegressor
from rfteach.projected import ProjectedSurrogate
from rfteach.srfe import SRFERegressor

RESULTS = Path(__file__).resolve().parent / "results" / "surrogates.json"
C = np.array([1, 2, 5, 10, 20, 100] + 14 * [5000.0])
TRAINING, VALIDATION = 800, 1000


def gaussian_process(X, y, shape):
    """scikit-learn's GaussianProcessRegressor with a width for each input, by the evidence."""
    kernel = ConstantKernel() * shape + WhiteKernel(0.1, (1e-8, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # widths of inputs without effect end at their bound
        return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)


def gp_gaussian(X, y, seed):
    """Gaussian process of scikit-learn, Gaussian kernel, a width for each input by the evidence."""
    return gaussian_process(X, y, RBF(np.ones(X.shape[1]), (1e-2, 1e3)))


def gp_matern(X, y, seed):
    """Gaussian process of scikit-learn, Matérn kernel with ν = 3/2, a width for each input by the evidence."""
    return gaussian_process(X, y, Matern(np.ones(X.shape[1]), (1e-2, 1e3), nu=1.5))


def kernel_ridge(X, y, seed):
    """KernelRidge of scikit-learn, Gaussian kernel, width and penalty by 5 folds."""
    grid = {"gamma": np.logspace(-3, 1, 9), "alpha": np.logspace(-8, 0, 9)}
    model = GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=5, scoring="neg_mean_squared_error").fit(X, y - y.mean())
    return Shifted(model, y.mean())


class Shifted:
    """A regressor of the residual about a number."""

    def __init__(self, model, offset):
        self.model, self.offset = model, offset

    def predict(self, X):
        return self.model.predict(X) + self.offset


def pce(X, y, seed):
    """SparsePCE on all inputs, all settings by default."""
    return SparsePCE(bounds="unit", n_folds=None).fit(X, y)


def srfe(X, y, seed):
    """SRFERegressor on all inputs, 1000 features of two inputs each, tolerance by cross-validation."""
    return SRFERegressor(1000, random_state=seed).fit(X, y)


def harfe(X, y, seed):
    """HARFERegressor on all inputs, 2000 features, learned bandwidths, all other settings by default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best bandwidths after 100 iterations will do
        return HARFERegressor(2000, bandwidth="learned", n_folds=None, random_state=seed).fit(X, y)


def adaptive(X, y, seed):
    """AdaptiveFeatureRegressor on all inputs, all settings by default."""
    box = np.tile([0.0, 1.0], (X.shape[1], 1))
    return AdaptiveFeatureRegressor(bounds=box, n_folds=None, random_state=seed).fit(X, y)


def projected(surrogate=None, optimizer="swarm", budget=300, search=None):
    """A method: five components of anisotropic kernel PCA, and a surrogate on them."""
    def fit(X, y, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of a surrogate on poor components
            return ProjectedSurrogate(surrogate=surrogate, optimizer=optimizer, budget=budget, search=search,
                                      n_folds=None, random_state=seed).fit(X, y)

    bandwidths = "a bandwidth for each input" if search is None else "one bandwidth for all inputs"
    name = "SparsePCE" if surrogate is None else f"{type(surrogate).__name__}, {surrogate.n_components} features"
    fit.__doc__ = f"ProjectedSurrogate: five components of kernel PCA, {bandwidths} by {optimizer} in {budget} " \
                  f"evaluations, then {name}."
    return fit


SRFE = SRFERegressor(1000, tolerance=0.1, random_state=0)
HARFE = HARFERegressor(500, bandwidth="scale", supports="all", n_folds=None, random_state=0)
METHODS = {
    "AdaptiveFeatureRegressor": adaptive, "SparsePCE": pce, "SRFERegressor": srfe, "HARFERegressor": harfe,
    "one bandwidth + SparsePCE": projected(budget=20, search={"bandwidth": (0.3, 100.0)}),
    "swarm + SparsePCE": projected(), "adam + SparsePCE": projected(optimizer="adam"),
    "swarm + HARFERegressor": projected(HARFE), "adam + HARFERegressor": projected(HARFE, "adam"),
    "adam + SRFERegressor": projected(SRFE, "adam"),
    "GP-ARD, Gaussian": gp_gaussian, "GP-ARD, Matérn 3/2": gp_matern, "KernelRidge": kernel_ridge}


def data(seed):
    """Training and validation points of one repetition."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(TRAINING + VALIDATION, len(C)))
    y = sobol_g(X, C)
    return X[:TRAINING], y[:TRAINING], X[TRAINING:], y[TRAINING:]


def measure(method, seed):
    """Error in units of the function's variance, and seconds to fit."""
    X, y, X_test, y_test = data(seed)
    start = time.perf_counter()
    model = METHODS[method](X, y, seed)
    seconds = time.perf_counter() - start
    error = np.mean((model.predict(X_test) - y_test) ** 2) / sobol_g_moments(C).variance
    return {"error": float(f"{error:.4g}"), "seconds": float(f"{seconds:.3g}")}


def summary(record):
    """Mean error, its standard error, and median seconds by method, as rows of a Markdown table."""
    lines = ["| method | error | standard error | seconds | repetitions |", "|---|--:|--:|--:|--:|"]
    for method, runs in record["runs"].items():
        errors = np.array([run["error"] for run in runs.values()])
        spread = errors.std(ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.nan
        seconds = np.median([run["seconds"] for run in runs.values()])
        lines.append(f"| {method} | {errors.mean():.5f} | {spread:.5f} | {seconds:.3g} | {len(errors)} |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    parser = records.command_line("Surrogates of the g-function with 20 inputs.", RESULTS, "method", METHODS, "--seeds", 10,
                                  "repetitions")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/surrogates.py", "runs", METHODS)
    for seed in range(args.seeds):
        for method in args.methods or METHODS:
            runs = record["runs"].setdefault(method, {})
            if str(seed) not in runs:
                runs[str(seed)] = measure(method, seed)
                print(method, seed, runs[str(seed)], flush=True)
                records.written(args.out, record, "runs", METHODS)
    print("\n" + summary(record))


if __name__ == "__main__":
    main()
