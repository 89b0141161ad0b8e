"""All rows exactly: seconds, memory and error of conjugate gradients, of a factorisation, and of Falkon, which approximates.

``python benchmarks/exact.py [TASK ...] [--methods METHOD ...] [--rounds N] [--out FILE]``. Protein comes from the folder
that ``RFTEACH_DATA`` names. All solve (K + λ I) a = y with centred targets, the kernel's bandwidth and λ chosen by
leave-one-out on 1500 of the rows. Each fit runs in a process of its own, which notes its peak of memory beyond what was
there before; the rounds take the methods in turn, so that what else the machine does falls on all alike.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.linalg
import torch

import records
from harness import cpu_of_others
from memory import status
from rfteach.arrays import row_blocks
from rfteach.bandwidth import median_bandwidth
from rfteach.conjugate import gram_cg
from rfteach.datasets import load_regression
from rfteach.kernel_ridge import gram_path, gram_times
from rfteach.kernels import Gaussian

RESULTS = Path(__file__).resolve().parent / "results/exact.json"
ROWS = 1500  # that bandwidth and penalty are chosen with
TASKS = {"protein 5000": 5000, "protein 10000": 10_000, "protein": 41_157}  # rows; the last is all but those for testing


def table(n):
    """Rows, targets and 4573 rows for testing, with theirs, all standardised; targets have the mean zero in training."""
    X, y = load_regression("protein-tertiary-structure", return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[: n + 4573]
    X, y = X[order], y[order]
    X, y = (X - X.mean(0)) / X.std(0), y / y.std()
    y = y - y[:n].mean()
    return X[:n], y[:n], X[n:], y[n:]


def chosen(X, y):
    """Bandwidth and penalty of the Gaussian with the least leave-one-out error on the first rows."""
    X, y, found = X[:ROWS], y[:ROWS], []
    median = median_bandwidth(X)
    for factor in (0.25, 0.5, 1.0):
        path = gram_path(Gaussian(factor * median)(X), y, fit_intercept=False)
        found.append((path.errors[path.best], factor * median, float(path.lams[path.best])))
    return min(found)[1:]


def scipy_solve(kernel, X, y, lam, given):
    """scipy.linalg.solve(assume_a="pos") in float64, in the memory of the matrix."""
    K = kernel(X)
    K.flat[:: len(K) + 1] += lam
    return X, scipy.linalg.solve(K.T, y, assume_a="pos", overwrite_a=True, overwrite_b=False, check_finite=False), {}


def ours(kernel, X, y, lam, given, n_landmarks=1000, max_iter=1000):
    """rfteach's gram_cg to a relative residual of 1e-6."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gram_cg(kernel, X, y, lam, fit_intercept=False, tol=1e-6, max_iter=max_iter, memory=given["memory"],
                        n_landmarks=n_landmarks)
    return X, found.coef, {"steps": found.n_iter, "residual": found.residual, "bound": float(found.error_bound)}


def plain(kernel, X, y, lam, given):
    """gram_cg without a preconditioner, to a relative residual of 1e-6 or 500 steps."""
    return ours(kernel, X, y, lam, given, n_landmarks=0, max_iter=500)


def falkon(kernel, X, y, lam, m, steps):
    """Coefficients at m rows by Falkon, and the relative residual; Rudi, Carratino and Rosasco (2017), section 3.

    With K_mm = TᵀT and T Tᵀ/m + (λ/n) I = AᵀA, conjugate gradients on Bᵀ(K_nmᵀ K_nm + λ K_mm)B β = Bᵀ K_nmᵀ y for
    B = T⁻¹A⁻¹/√n; K_nm is made anew by blocks of rows in each step. In float64.
    """
    n, X, y = len(X), torch.from_numpy(X), torch.from_numpy(y)
    C = X[torch.from_numpy(np.random.default_rng(0).choice(n, min(m, n), replace=False))]
    m = len(C)
    K, unit = kernel.gram(C, C), torch.eye(m, dtype=X.dtype)
    T = torch.linalg.cholesky(K + torch.finfo(X.dtype).eps * m * unit, upper=True)
    A = torch.linalg.cholesky(T @ T.T / m + lam / n * unit, upper=True)

    def solve(M, v, transposed=False):
        return torch.linalg.solve_triangular(M.T if transposed else M, v[:, None], upper=not transposed)[:, 0]

    def products(v, targets):
        """K_nmᵀ (K_nm v + targets)."""
        total = torch.zeros_like(v)
        for rows in row_blocks(n, 16 * m, X.device):
            block = kernel.gram(X[rows], C)
            total += block.T @ (block @ v + (targets[rows] if targets is not None else 0))
        return total

    def times(b):
        v = solve(A, b)
        return solve(A, solve(T, products(solve(T, v), None) / n, True) + lam / n * v, True)

    r = solve(A, solve(T, products(torch.zeros(m, dtype=X.dtype), y / n), True), True)
    b, v, goal = torch.zeros_like(r), r, 1e-6 * r.norm()
    for step in range(1, steps + 1):
        Hv = times(v)
        along = (r @ r) / (v @ Hv)
        b, new = b + along * v, r - along * Hv
        v, r = new + (new @ new) / (r @ r) * v, new
        if r.norm() <= goal:
            break
    return C.numpy(), solve(T, solve(A, b)).numpy(), {"steps": step, "residual": float(r.norm() / goal * 1e-6)}


def falkon_of(m):
    """What runs it with m centres to a relative residual of 1e-6, at most 50 steps."""
    def run(kernel, X, y, lam, given):
        return falkon(kernel, X, y, lam, m, 20)

    run.__doc__ = f"Falkon as published, {m} of the rows as centres, 20 steps; its limit is Nyström's model, and not the fit of all rows."
    return run


METHODS = {"gram_cg": ours, "scipy": scipy_solve, "CG, no preconditioner": plain, "Falkon, 1000": falkon_of(1000),
           "Falkon, 4000": falkon_of(4000)}
MOST = {"scipy": 20_000, "CG, no preconditioner": 10_000}  # rows; beyond, the former has no room, the latter no time


def child(task, method, folder):
    """One fit and its predictions, in a process of its own: what ``measured`` reads."""
    given = json.loads((Path(folder) / "given.json").read_text())
    X, y, T, t = table(TASKS[task])
    kernel, fit = Gaussian(given["bandwidth"]), METHODS[method]
    fit(kernel, X[:300], y[:300], 1.0, given)  # libraries are loaded, threads started
    Path("/proc/self/clear_refs").write_text("5")
    before, wall, busy, others = status("VmRSS"), time.perf_counter(), time.process_time(), cpu_of_others()
    centers, coef, found = fit(kernel, X, y, given["lam"], given)
    seconds = time.perf_counter() - wall
    found = {"seconds": seconds, "cpu": time.process_time() - busy, "others": (cpu_of_others() - others) / seconds,
             "mib": (status("VmHWM") - before) / 2**20, **found}
    values = gram_times(kernel, T, centers, coef)
    np.save(Path(folder) / f"{method}.npy", values)
    found["error"] = float(np.mean((values - t) ** 2) / np.var(t))
    print(json.dumps(found))


def measured(task, method, folder):
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536",
           "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, __file__, task, "--child", method, folder], env=env, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{task}, {method} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def contest(task, methods, rounds):
    """What the task is, and for each method the medians over rounds and the distance of its predictions from scipy's."""
    X, y, T, t = table(TASKS[task])
    n = len(X)
    bandwidth, lam = chosen(X, y)
    room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    given = {"bandwidth": bandwidth, "lam": lam, "memory": max(8 * 2**30, 0.7 * room)}
    methods = [method for method in methods if n <= MOST.get(method, math.inf)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "given.json").write_text(json.dumps(given))
        runs = {method: [] for method in methods}
        for _ in range(rounds):
            for method in methods:
                runs[method].append(measured(task, method, folder))
                print(task, method, runs[method][-1], flush=True)
        right = "scipy" if "scipy" in methods else "gram_cg"
        values = {method: np.load(Path(folder) / f"{method}.npy") for method in methods}
    found = {}
    for method, tried in runs.items():
        found[method] = {key: float(f"{np.median([run[key] for run in tried]):.4g}") for key in tried[0]} | {"rounds": len(tried)}
        if method != right:
            found[method]["apart"] = float(f"{np.sqrt(np.mean((values[method] - values[right]) ** 2)) / np.std(y):.3g}")
    return {"rows": n, "inputs": X.shape[1], "tests": len(T), "bandwidth": float(f"{bandwidth:.4g}"), "lam": float(f"{lam:.4g}"),
            "apart_from": right, "methods": found}


def main(argv=None):
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"all if none is named: {', '.join(TASKS)}")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each method, of which the medians count (1)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    if args.child:
        return child(args.tasks[0], *args.child)
    if unknown := {*args.tasks} - {*TASKS}:
        parser.error(f"unknown task {min(unknown)!r}; there are {', '.join(TASKS)}")
    record = records.opened(args.out, "python benchmarks/exact.py", "tasks", METHODS)
    for task in args.tasks or TASKS:
        wanted = {method for method in args.methods if TASKS[task] <= MOST.get(method, math.inf)}
        if not wanted <= {*record["tasks"].get(task, {"methods": ()})["methods"]}:  # a task is measured in one run
            record["tasks"][task] = contest(task, args.methods, args.rounds)
            records.written(args.out, record, "tasks", TASKS)
    return record


if __name__ == "__main__":
    main()
