"""Momentum for EigenPro: how near the interpolant is after some epochs, beside AxlePro by its authors.

``python benchmarks/momentum.py [TASK ...] [--methods METHOD ...] [--out FILE]``. MNIST comes from the folder that
``RFTEACH_DATA`` names. Seconds are of the processor, all threads together, without those in which errors are measured.
The authors' code (https://github.com/parthe/torchkernels, ``solvers/axlepro.py``) runs where Python finds its package
``torchkernels``. All have one kernel, and as many directions from as many rows for their preconditioner; batch, steps
and damping are those that each one chooses.
"""

import argparse
import contextlib
import io
import sys
import time
from pathlib import Path

import torch

import records
from rfteach.datasets import load_mnist
from rfteach.eigenpro import EigenProRegressor
from rfteach.kernel_ridge import gram_solve
from rfteach.kernels import Gaussian

RESULTS = Path(__file__).resolve().parent / "results/momentum.json"


def smooth():
    """The Gaussian with bandwidth 2 on 800 rows of six normal inputs, 100 directions; error: distance from the interpolant at 1000 other rows, relative."""
    X = torch.randn(1800, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, kernel = torch.sin(X[:, :1]) + X[:, 1:2] * X[:, 2:3], Gaussian(2.0)
    a = gram_solve(kernel(X[:800]), y[:800], 1e-12, fit_intercept=False, left_out=False).coef
    goal, K = kernel(X[800:], X[:800]) @ a, kernel(X[800:], X[:800])
    return kernel, X[:800], y[:800], dict(n_subsample=800, n_eigen=100), lambda c: {
        "error": float((K @ c - goal).norm() / goal.norm())}


def mnist():
    """The Gaussian with bandwidth 5 on 20 000 images, 160 directions from 2000; error: % of wrong labels on 10 000 others."""
    X, y = (torch.from_numpy(part[:20_000]) for part in load_mnist(return_X_y=True))
    X_test, y_test = map(torch.from_numpy, load_mnist("test", return_X_y=True))
    Y, kernel = torch.nn.functional.one_hot(y).to(X), Gaussian(5.0)

    def errors(c):
        test, train = (torch.cat([kernel(rows, X) @ c.to(X) for rows in part.split(1000)]) for part in (X_test, X))
        return {"error": 100 * float((test.argmax(1) != y_test).double().mean()), "loss": float((train - Y).square().mean())}

    return kernel, X, Y, dict(n_subsample=2000, n_eigen=160), errors


TASKS = {"smooth": (smooth, (3, 10, 30, 100, 300)), "mnist": (mnist, (1, 2, 3, 5, 10))}


class Watch:
    """Coefficients after some epochs, and the seconds until then, those of the copy apart."""

    def __init__(self, epochs):
        self.epochs, self.kept, self.epoch, self.start = epochs, [], 0, time.process_time()

    def __call__(self, c):
        self.epoch += 1
        if self.epoch in self.epochs:
            self.kept.append((self.epoch, time.process_time() - self.start, c.clone()))

    def found(self, errors):
        return [{"epochs": epoch, "seconds": float(f"{seconds:.3g}"),
                 **{name: float(f"{value:.3g}") for name, value in errors(c).items()}} for epoch, seconds, c in self.kept]


def ours(kernel, X, Y, setting, watch, momentum):
    EigenProRegressor(kernel, max_iter=max(watch.epochs), momentum=momentum, early_stopping=False, fit_intercept=False,
                      callback=lambda model, epoch: watch(torch.from_numpy(model.dual_coef_)), random_state=0,
                      **setting).fit(X, Y)


def plain(*args):
    """rfteach's EigenPro, plain steps."""
    ours(*args, False)


def with_momentum(*args):
    """rfteach's EigenPro, ``momentum=True``."""
    ours(*args, True)


def authors(kernel, X, Y, setting, watch):
    """AxlePro by its authors, ``lm_axlepro`` with its own batch, steps and damping."""
    import torchkernels.solvers.axlepro as code

    code.KmV = lambda K, X, Z, a: watch(a)  # what it calls at the end of each epoch, for an error that is not used here
    code.mse = lambda *_: 0.0
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        code.lm_axlepro(kernel, X, Y, setting["n_subsample"], setting["n_eigen"], epochs=max(watch.epochs))


METHODS = {"plain": plain, "momentum": with_momentum, "AxlePro": authors}


def main(argv=None):
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"all if none is named: {', '.join(TASKS)}")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    if unknown := {*args.tasks} - {*TASKS}:
        parser.error(f"unknown task {min(unknown)!r}; there are {', '.join(TASKS)}")
    record = records.opened(args.out, "python benchmarks/momentum.py", "tasks", METHODS)
    record["about"] = {name: task.__doc__ for name, (task, _) in TASKS.items()}
    for name in args.tasks or TASKS:
        kept, (load, epochs) = record["tasks"].setdefault(name, {}), TASKS[name]
        for method in [method for method in args.methods if method not in kept]:
            *problem, errors = load()
            watch = Watch(epochs)
            try:
                METHODS[method](*problem, watch)
            except ModuleNotFoundError as missing:
                print(f"{method} is left out: {missing}", file=sys.stderr)
                continue
            kept[method] = watch.found(errors)
            print(name, method, kept[method], flush=True)
            records.written(args.out, record, "tasks", TASKS)
    return record


if __name__ == "__main__":
    main()
