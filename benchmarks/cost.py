"""What `rfteach.cost` predicts beside what fits take: seconds, and bytes in a process of their own.

``python benchmarks/cost.py [--out FILE]``. The rates of the machine are measured before and after each fit, and their
geometric mean counts, so that a machine that is busy is busy for both.
"""

import argparse
import json
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import torch

import harness
from memory import extra_memory
from rfteach.attention import random_feature_attention
from rfteach.cost import Machine, cost, measure
from rfteach.eigenpro import EigenProRegressor
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.kernel_ridge import gram_solve
from rfteach.kernels import Gaussian
from rfteach.rbf import RBFRegressor
from rfteach.streaming import StreamingRidge

RESULTS = Path(__file__).resolve().parent / "results" / "cost.json"
SETTINGS = [  # name, rows, inputs, features or centres, dtype
    ("StreamingRidge", 100_000, 500, 0, "float64"),
    ("StreamingRidge", 20_000, 2000, 0, "float32"),
    ("RandomFeatureRidge", 2000, 10, 500, "float64"),
    ("RandomFeatureRidge", 20_000, 10, 500, "float64"),
    ("RandomFeatureRidge", 20_000, 300, 2000, "float64"),
    ("RandomFeatureRidge", 200_000, 20, 1000, "float64"),
    ("RandomFeatureRidge", 2000, 10, 4000, "float64"),
    ("RBFRegressor", 5000, 10, 200, "float64"),
    ("RBFRegressor", 100_000, 10, 200, "float64"),
    ("RBFRegressor", 20_000, 50, 1000, "float64"),
    ("gram_solve", 2000, 20, 0, "float64"),
    ("gram_solve", 6000, 20, 0, "float64"),
    ("gram_solve", 6000, 500, 0, "float32"),
    ("EigenProRegressor", 4000, 20, 0, "float32"),
    ("EigenProRegressor", 15_000, 20, 0, "float32"),
    ("EigenProRegressor", 10_000, 784, 0, "float32"),
    ("EigenProRegressor", 8000, 20, 0, "float64"),
    ("random_feature_attention", 16_384, 64, 256, "float32"),
    ("random_feature_attention", 131_072, 64, 256, "float32"),
]


def contest(name, n, d, N, dtype):
    """One call that does what `cost` counts, and returns an array."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n).astype(dtype)
    kernel = Gaussian(float(np.sqrt(2 * d)))

    def features():
        return RandomFourierFeatures(bandwidth="loo", n_components=max(N, 2), form="paired", random_state=0)

    def exact():
        K = kernel.gram(torch.from_numpy(X), torch.from_numpy(X))
        return gram_solve(K, y[:, None], 0.1, overwrite=True).coef

    calls = {
        "StreamingRidge": lambda: StreamingRidge().fit(X, y).coef_,
        "RandomFeatureRidge": lambda: RandomFeatureRidge(features()).fit(X, y).coef_,
        "RBFRegressor": lambda: RBFRegressor(max(N, 1), random_state=0).fit(X, y).coef_,
        "gram_solve": exact,
        "EigenProRegressor": lambda: EigenProRegressor(max_iter=20, early_stopping=False, random_state=0).fit(X, y).dual_coef_,
        "random_feature_attention": lambda: random_feature_attention(X, X, X, n_components=max(N, 1), random_state=0),
    }
    return harness.Contest({"fit": calls[name]}, "fit")


def compared(name, n, d, N, dtype, repeats=3):
    """Seconds and bytes, predicted and measured."""
    call, rounds = contest(name, n, d, N, dtype).cases["fit"], []
    for _ in range(repeats):
        before = measure(0.5)
        start = time.perf_counter()
        call()
        seconds, after = time.perf_counter() - start, measure(0.5)
        machine = Machine(*np.sqrt(np.multiply(*([getattr(m, f) for f in vars(before)] for m in (before, after)))))
        rounds.append((seconds, cost(name, n, d, n_components=N or None, machine=machine, dtype=dtype)))
    seconds, predicted = min(rounds, key=lambda pair: pair[0])
    setting = {"name": name, "n": n, "d": d, "N": N, "dtype": dtype}
    memory = extra_memory("cost", "fit", setting)
    four = {"seconds": seconds, "predicted_seconds": predicted.seconds, "predicted_bytes": predicted.memory}
    row = setting | {key: float(f"{value:.3g}") for key, value in four.items()}
    return row | {"bytes": None if memory is None else memory["bytes"]}


def main(argv=None):
    """Measure all settings, print them and keep them."""
    line = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    line.add_argument("--out", type=Path, default=RESULTS)
    args, rows = line.parse_args(argv), []
    warnings.simplefilter("ignore")  # of epochs that end
    for setting in SETTINGS:
        rows.append(compared(*setting))
        row = rows[-1]
        print(*setting, f"{row['seconds']:.3g} s, over predicted {row['seconds'] / row['predicted_seconds']:.2f};",
              f"{(row['bytes'] or 0) / 1e6:.0f} MB, predicted {row['predicted_bytes'] / 1e6:.0f}", flush=True)
    record = {"command": "python benchmarks/cost.py", "date": date.today().isoformat(), "machine": harness.machine(),
              "rates": vars(measure()), "fits": rows}
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
