"""Friedman's first function through the course: test errors of each chapter's regressor, without noise and with.

``python benchmarks/friedman.py [METHOD ...] [--draws 10]`` measures what is not in ``benchmarks/results/friedman.json``
yet, with ``friedman_errors`` of the chapter on data; draw 0 is the one that chapters print. The first page of the course
and the last chapter on regressors show what is kept.
"""

import statistics
import time
import warnings
from pathlib import Path

import records
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.agop import RFMRegressor
from rfteach.auto import AutoKernelRegressor
from rfteach.centers import CentersRegressor
from rfteach.chaos import SparsePCE
from rfteach.datasets import friedman_errors
from rfteach.eigenpro import EigenProRegressor
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.harfe_regressor import HARFERegressor
from rfteach.rbf import RBFRegressor
from rfteach.srfe import SRFERegressor

RESULTS = Path(__file__).parent / "results/friedman.json"


def waves(bandwidth, seed):
    """Ridge regression on 1000 random Fourier features."""
    features = RandomFourierFeatures(n_components=1000, form="paired", bandwidth=bandwidth, random_state=seed)
    return RandomFeatureRidge(features)


# For each method, named as in tables.py, the page of its chapter, "" for peers, and the model.
METHODS = {
    "linear regression": ("", lambda seed: LinearRegression()),
    "HistGradientBoosting, as it comes": ("", lambda seed: HistGradientBoostingRegressor(random_state=seed)),
    "RandomFeatureRidge": ("03c_feature_ridge", lambda seed: waves("median", seed)),
    "RandomFeatureRidge, learned bandwidths": ("04_bandwidth", lambda seed: waves("learned", seed)),
    "RBFRegressor": ("05_rbf", lambda seed: RBFRegressor(random_state=seed)),
    "SRFERegressor": ("06d_srfe", lambda seed: SRFERegressor(random_state=seed)),
    "HARFERegressor": ("07b_harfe", lambda seed: HARFERegressor(random_state=seed)),
    "EigenProRegressor": ("08d_eigenpro", lambda seed: EigenProRegressor(random_state=seed)),
    "CentersRegressor": ("08e_centers", lambda seed: CentersRegressor(random_state=seed)),
    "SparsePCE": ("10a_chaos", lambda seed: SparsePCE()),
    "AdaptiveFeatureRegressor": ("10f_adaptive", lambda seed: AdaptiveFeatureRegressor(random_state=seed)),
    "RFMRegressor": ("12_agop", lambda seed: RFMRegressor(random_state=seed)),
    "AutoKernelRegressor": ("13d_auto", lambda seed: AutoKernelRegressor(random_state=seed)),
}


def measure(method, seed):
    """Both errors in one draw, and the seconds for both fits and predictions."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that were cut
        errors = friedman_errors(METHODS[method][1](seed), seed)
    return {**{name: float(f"{error:.3g}") for name, error in zip(("clean", "noisy"), errors)},
            "seconds": float(f"{time.perf_counter() - start:.2g}")}


def summary(record):
    """The median of each method over draws, as rows in Markdown."""
    lines = ["| method | draws | no noise | noise 1 | seconds |", "|---|--:|--:|--:|--:|"]
    for method, runs in record["runs"].items():
        medians = (statistics.median(run[key] for run in runs.values()) for key in ("clean", "noisy", "seconds"))
        lines.append(f"| {method} | {len(runs)} | " + " | ".join(f"{value:.2g}" for value in medians) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    parser = records.command_line("Friedman's first function through the course.", RESULTS, "method", METHODS, "--draws",
                                  10, "of the points")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/friedman.py", "runs")
    record["pages"] = {method: page for method, (page, _) in METHODS.items()}
    for method in args.methods or METHODS:
        kept = record["runs"].setdefault(method, {})
        for seed in range(args.draws):
            if str(seed) not in kept:
                kept[str(seed)] = measure(method, seed)
                print(method, seed, kept[str(seed)], flush=True)
        records.written(args.out, record, "runs", METHODS)
    print(summary(record))
    return record


if __name__ == "__main__":
    main()
