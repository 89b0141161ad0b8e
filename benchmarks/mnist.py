"""EigenPro on MNIST beyond the published runs: other kernels, and what lowers the error.

The published runs are experiments of `rfteach.evidence.mnist`.

``python benchmarks/mnist.py [RUN ...] [--rows 60000] [--folder DIR] [--out FILE]`` needs MNIST, in the
folder that ``RFTEACH_DATA`` names or downloaded. Each run keeps a checkpoint in DIR after each epoch and
its result in FILE when it is done, so that a command that was stopped goes on where it was.
``--list`` names the runs.
"""

import argparse
import json
import math
import time
from datetime import date
from pathlib import Path

import numpy as np

from harness import machine
from rfteach.datasets import load_mnist
from rfteach.eigenpro import EigenProClassifier
from rfteach.evidence.mnist import EIGENPRO_SETTINGS, fourier, training_errors
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Matern

RESULTS = Path(__file__).resolve().parent / "results"


def runs():
    """What can be run: name and parameters.

    "shift" in a name says that shifted images are added, "held out" that the last sixth of the training images is
    validated on, for choices.
    """
    gaussian = Gaussian(5.0)
    table = {
        "Laplacian, RKHS": dict(kernel=Laplacian(10.0), **EIGENPRO_SETTINGS),
        "Laplacian, features": dict(feature_map=fourier(Laplacian(10.0)), **EIGENPRO_SETTINGS),
        "Cauchy, RKHS": dict(kernel=Cauchy(math.sqrt(40)), **EIGENPRO_SETTINGS),
        "Cauchy, features": dict(feature_map=fourier(Cauchy(math.sqrt(40))), **EIGENPRO_SETTINGS),
        "bandwidth 5": dict(kernel=gaussian, max_iter=10),
        "with momentum": dict(kernel=gaussian, max_iter=10, momentum=True),
        "with momentum, batches of 60": dict(kernel=gaussian, max_iter=10, momentum=True, batch_size=60),
        **{f"with momentum, seed {seed}": dict(kernel=gaussian, max_iter=3, momentum=True, random_state=seed)
           for seed in range(1, 5)},
        **{f"held out, m = {m}, seed {seed}": dict(kernel=gaussian, max_iter=3, momentum=True, n_subsample=m, random_state=seed)
           for seed in range(3) for m in (4000, 6000, 8000)},
        "the same, nothing kept": dict(kernel=gaussian, max_iter=3, cache=None),
    }
    for sigma in (3.0, 4.0, 7.0):
        table[f"bandwidth {sigma:g}"] = dict(kernel=Gaussian(sigma), max_iter=10)
    table["Matérn 5/2, bandwidth 8"] = dict(kernel=Matern(2.5, 8.0), max_iter=10)
    for k in (40, 160):
        table[f"k = {k}"] = dict(kernel=gaussian, n_eigen=k, max_iter=10)
    table["orthogonal features"] = dict(feature_map=fourier(gaussian, sampling="orthogonal"), **EIGENPRO_SETTINGS)
    table["one shift of each image"] = dict(kernel=gaussian, max_iter=6)
    return table


def shifted(X, y):
    """Each image, and once more moved by one pixel up, down, left or right, which one is drawn."""
    images = X.reshape(-1, 28, 28)
    moves = [np.roll(images, step, axis) for axis in (1, 2) for step in (-1, 1)]  # the margins are empty
    which = np.random.default_rng(0).integers(4, size=len(X))
    added = np.stack(moves)[which, np.arange(len(X))].reshape(len(X), -1)
    return np.concatenate([X, added]), np.concatenate([y, y])


def measure(name, parameters, data, folder, cache_size):
    """Errors and seconds by epoch, and the figures of the preconditioner."""
    X, y, X_test, y_test = data
    model = EigenProClassifier(
        **{"max_iter": 20, "cache": "half", "random_state": 0, **parameters}, verbose=True,
        early_stopping=False, fit_intercept=False, callback=training_errors(),
        cache_size=cache_size, checkpoint=folder / f"{name}.npz")
    start = time.perf_counter()
    model.fit(X, y, X_test, y_test)
    history = model.history_
    return {"seconds": round(time.perf_counter() - start, 1), "setup": round(model.seconds_of_setup_, 1), "kept": model.cache_,
            "batch": model.batch_size_, "step": round(model.step_size_, 3), "k": model.n_eigen_,
            "lambda": float(f"{model.lam_:.4g}"), "beta": float(f"{model.beta_:.4g}"),
            "rows": len(X), "test": [round(100 * e, 2) for e in history["validation_error"]],
            "training while it learns": [round(100 * e, 2) for e in history["train_error"]],
            "training after": {str(epoch): round(100 * e, 3) for epoch, e in history.get("after", [])},
            "epochs": [round(s, 2) for s in history["seconds"]], "cpu": machine()["cpu"]}


def summary(record):
    """One line for each run: errors, best, and time."""
    lines = [f"{'run':28}{'k':>5}{'batch':>6}{'test error in % after epochs 1, 2, 3, 5, 10, 20':>50}{'seconds':>9}"]
    for name, run in record.items():
        errors = "".join(f"{run['test'][e - 1]:7.2f}" for e in (1, 2, 3, 5, 10, 20) if e <= len(run["test"]))
        lines.append(f"{name:28}{run['k']:5}{run['batch']:6}{errors:>50}{run['seconds']:9.0f}")
    return lines


def main(argv=None):
    """Measure the named runs that are not in the file yet, and print what the file has."""
    parser = argparse.ArgumentParser(description="EigenPro on MNIST: other kernels, and what lowers the error.")
    parser.add_argument("run", nargs="*", help="which runs (all)")
    parser.add_argument("--list", action="store_true", help="name the runs and stop")
    parser.add_argument("--rows", type=int, default=60_000, help="training images, the first ones (60000)")
    parser.add_argument("--cache-size", type=float, default=8500, help="MiB for rows that are kept (8500)")
    parser.add_argument("--folder", type=Path, default=Path("_build/mnist"), help="checkpoints (_build/mnist)")
    parser.add_argument("--out", type=Path, default=RESULTS / "mnist.json", metavar="FILE",
                        help="benchmarks/results/mnist.json")
    args = parser.parse_args(argv)
    table = runs()
    if args.list:
        print("\n".join(table))
        return
    if unknown := [name for name in args.run if name not in table]:
        parser.error(f"no such run: {unknown}; --list names them")
    record = {"command": "python benchmarks/mnist.py", "machine": machine(), "date": str(date.today()),
              "rows": args.rows, "runs": {}}
    if args.out.exists():
        record = json.loads(args.out.read_text(encoding="utf-8"))
    if record["rows"] != args.rows:
        parser.error(f"{args.out} is about {record['rows']} rows; name another file by --out")
    args.folder.mkdir(parents=True, exist_ok=True)
    X, y = load_mnist("train", return_X_y=True)
    X_test, y_test = load_mnist("test", return_X_y=True)
    X, y = X[: args.rows], y[: args.rows]
    for name in args.run or table:
        if name in record["runs"]:
            continue
        print(name, flush=True)
        rows, n = (X, y, X_test, y_test), len(X) * 5 // 6
        if "shift" in name:
            rows = *shifted(X, y), X_test, y_test
        elif "held out" in name:
            rows = X[:n], y[:n], X[n:], y[n:]
        record["runs"][name] = measure(name, table[name], rows, args.folder, args.cache_size)
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(["", *summary(record["runs"])]))


if __name__ == "__main__":
    main()
