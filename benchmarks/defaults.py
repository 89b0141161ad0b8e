"""Every regressor as it comes, where data are mostly noise and where they are not: defaults that do no harm.

``python benchmarks/defaults.py [MODEL ...] [--settings S ...] [--draws 12] [--out FILE]``. A noisy setting
draws n rows of d inputs and 2000 test rows: targets that are noise alone; a linear function of all inputs;
Friedman's first function with 40 irrelevant inputs; signal and noise have equal variance. A quiet one has no
noise: Friedman's function, a function of order two, Sobol's g-function with 20 inputs, and, where the folder
``RFTEACH_DATA`` has them, the data set on propulsion and nine real tables, 1000 training rows at most. What is
measured is kept in the file as it comes, by setting, model and draw, and not measured again.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import RidgeCV

import records
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.agop import RFMRegressor
from rfteach.auto import AutoKernelRegressor
from rfteach.centers import CentersRegressor
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.datasets import load_propulsion, load_regression, sobol_g
from rfteach.eigenpro import EigenProRegressor
from rfteach.features import RandomFourierFeatures
from rfteach.srfe import SRFERegressor
from rfteach.harfe_regressor import HARFERegressor
from rfteach.rbf import RBFRegressor
from rfteach.chaos import SparsePCE
from rfteach.projected import ProjectedSurrogate
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.streaming import StreamingRidge

RESULTS = Path(__file__).resolve().parent / "results" / "defaults.json"
TABLES = ["yacht", "energy", "concrete", "airfoil-self-noise", "wine-quality-red", "kin8nm", "power-plant",
          "naval-propulsion-plant", "protein-tertiary-structure"]
BEST = ["constant", "RidgeCV"]  # what a default must not do worse than
MODELS = {
    "constant": lambda seed: DummyRegressor(),
    "RidgeCV": lambda seed: RidgeCV(np.logspace(-3, 6, 19)),
    "StreamingRidge": lambda seed: StreamingRidge(),
    "RandomFeatureRidge": lambda seed: RandomFeatureRidge(),
    "KernelRidgeRegressor": lambda seed: KernelRidgeRegressor(),
    "RBFRegressor": lambda seed: RBFRegressor(random_state=seed),
    "SRFERegressor": lambda seed: SRFERegressor(random_state=seed),
    "HARFERegressor": lambda seed: HARFERegressor(random_state=seed),
    "EigenProRegressor": lambda seed: EigenProRegressor(random_state=seed),
    "CentersRegressor": lambda seed: CentersRegressor(random_state=seed),
    "SparsePCE": lambda seed: SparsePCE(),
    "AdaptiveFeatureRegressor": lambda seed: AdaptiveFeatureRegressor(random_state=seed),
    "RFMRegressor": lambda seed: RFMRegressor(random_state=seed),
    "AutoKernelRegressor": lambda seed: AutoKernelRegressor(random_state=seed),
    "ProjectedSurrogate": lambda seed: ProjectedSurrogate(random_state=seed),
    "RandomFeatureRidge, learned": lambda seed: RandomFeatureRidge(RandomFourierFeatures(
        bandwidth="learned", n_components=500, form="paired", random_state=seed)),
    "RBFRegressor, learned": lambda seed: RBFRegressor(bandwidth="learned", random_state=seed),
}


def noise(n, d, rng):
    """Normal inputs, and targets that have nothing to do with them."""
    return rng.normal(size=(n, d)), rng.normal(size=n)


def linear(n, d, rng):
    """Normal inputs, a linear function of all of them, and as much noise."""
    X, slope = rng.normal(size=(n, d)), rng.normal(size=d)
    return X, X @ slope / np.linalg.norm(slope) + rng.normal(size=n)


def friedman(n, d, rng):
    """Uniform inputs of which five count, Friedman's first function, and as much noise."""
    X, y = make_friedman1(n, d, random_state=int(rng.integers(2**31)))
    return X, y + y.std() * rng.normal(size=n)


def quiet_friedman(n, d, rng):
    """The same without noise."""
    return make_friedman1(n, d, random_state=int(rng.integers(2**31)))


def order_two(n, d, rng):
    """A function of pairs of inputs, without noise."""
    X = rng.uniform(-1, 1, (n, d))
    return X, np.cos(2 * X[:, 1] * X[:, 4]) + X[:, 2] ** 2 + X[:, 0] * X[:, 3]


def g_function(n, d, rng):
    """Sobol's g-function; six inputs of falling effect."""
    X = rng.random((n, d))
    return X, sobol_g(X, np.array([1, 2, 5, 10, 20, 100] + (d - 6) * [5000.0]))


NOISY = {f"{make.__name__} {n}/{d}": (make, n, d) for make, sizes in (
    (noise, [(50, 10), (100, 50), (300, 20), (300, 100)]), (linear, [(50, 10), (100, 50), (300, 20), (300, 100)]),
    (friedman, [(100, 45), (200, 45), (300, 45)])) for n, d in sizes}
QUIET = {"Friedman-1 200/10": (quiet_friedman, 200, 10), "order two 200/10": (order_two, 200, 10),
         "g-function 800/20": (g_function, 800, 20)}
REAL = ["propulsion", *TABLES]


def data(setting, seed):
    """Training and test rows of one draw; inputs and targets of real tables are standardised by the training rows."""
    rng = np.random.default_rng([seed, 2026])
    if setting not in REAL:
        make, n, d = {**NOISY, **QUIET}[setting]
        X, y = make(n + 2000, d, rng)
        return X[:n], y[:n], X[n:], y[n:]
    load = load_propulsion if setting == "propulsion" else load_regression
    X, y = load(*[setting] * (setting != "propulsion"), return_X_y=True, download=False)
    order = rng.permutation(len(y))
    test, train = order[: len(y) // 5][:2000], order[len(y) // 5:][:1000]
    spread = X[train].std(0)
    X = (X - X[train].mean(0)) / np.where(spread > 0, spread, 1)
    y = (y - y[train].mean(0)) / y[train].std(0)
    return X[train], y[train], X[test], y[test]


def measure(model, X, y, X_test, y_test, seed):
    """Mean squared test error, what the model itself says of its error if it does, and seconds to fit."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that were cut, and sets of inputs that were not looked at
        model = MODELS[model](seed).fit(X, y)
    found = {"seconds": float(f"{time.perf_counter() - start:.3g}"),
             "error": float(f"{np.mean((model.predict(X_test).reshape(y_test.shape) - y_test) ** 2):.5g}")}
    if hasattr(model, "error_"):
        found["reported"] = float(f"{np.mean(model.error_):.5g}")
    return found


def ratios(runs, model):
    """Test error over that of the better of constant and RidgeCV, draw by draw."""
    return np.array([runs[model][seed]["error"] / min(runs[best][seed]["error"] for best in BEST)
                     for seed in runs[model] if all(seed in runs.get(best, {}) for best in BEST)])


def summary(record):
    """Mean ratios in the noisy settings, and root mean square errors in the others, as Markdown tables."""
    names = [s for s in NOISY if s in record["runs"]]
    lines = ["| model | " + " | ".join(names) + " | > 20 % worse | reported / test |", "|---|" + "--:|" * (len(names) + 2)]
    for model in MODELS:
        per = [ratios(record["runs"][s], model) if model in record["runs"][s] else np.empty(0) for s in names]
        every = np.concatenate(per) if per else np.empty(0)
        told = [run["reported"] / run["error"] for s in names for run in record["runs"][s].get(model, {}).values()
                if "reported" in run]
        lines.append(f"| {model} | " + " | ".join(f"{r.mean():.2f}" if len(r) else "–" for r in per)
                     + f" | {(every > 1.2).sum()} of {len(every)} | {f'{np.mean(told):.2f}' if told else '–'} |")
    names = [s for s in [*QUIET, *REAL] if s in record["runs"]]
    if names:
        lines += ["", "| model | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for model in MODELS if names else []:
        per = [[run["error"] ** 0.5 for run in record["runs"][s].get(model, {}).values()] for s in names]
        lines.append(f"| {model} | " + " | ".join(f"{np.mean(r):.3g}" if r else "–" for r in per) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the tables."""
    settings = [*NOISY, *QUIET, *(REAL if os.environ.get("RFTEACH_DATA") else [])]
    parser = records.command_line("Every regressor as it comes, on noise and without.", RESULTS, "model", MODELS, "--draws", 12,
                                  "of a noisy setting; a third of it of the others")
    parser.add_argument("--settings", nargs="+", default=settings, metavar="S", choices=[*NOISY, *QUIET, *REAL],
                        help=f"all if none is named: {', '.join(settings)}")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/defaults.py", "runs")
    for seed in range(args.draws):
        for setting in args.settings:
            if setting not in NOISY and seed >= max(1, args.draws // 3):
                continue
            parts, kept = data(setting, seed), record["runs"].setdefault(setting, {})
            for model in dict.fromkeys([*BEST, *(args.models or MODELS)]):
                if str(seed) not in kept.setdefault(model, {}):
                    kept[model][str(seed)] = measure(model, *parts, seed)
                    print(setting, model, seed, kept[model][str(seed)], flush=True)
            records.written(args.out, record, "runs", [*NOISY, *QUIET, *REAL])
    print("\n" + summary(record))


if __name__ == "__main__":
    main()
