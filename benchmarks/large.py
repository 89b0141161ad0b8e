"""Few centres and many rows: error against seconds, and the memory of a fit from a file.

``python benchmarks/large.py [TASK ...] [--methods METHOD ...] [--out FILE]``. MNIST and protein come from the folder
that ``RFTEACH_DATA`` names; the synthetic task writes a million rows into a temporary file and maps it into memory.
Seconds are of the processor, all threads together, so that other work on the machine counts little. The authors' code
of EigenPro 4 (https://github.com/EigenPro/EigenPro) runs where Python finds its package ``eigenpro``. All have the same
kernel, and as many centres or features.
"""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import records
from rfteach.centers import CentersClassifier, CentersRegressor
from rfteach.datasets import load_mnist, load_regression
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.kernels import Gaussian
from rfteach.rbf import NystroemFeatures

RESULTS = Path(__file__).resolve().parent / "results/large.json"
MILLION, WIDE = 1_000_000, 100


def mnist():
    """20 000 images of 784 pixels, the Gaussian with bandwidth 5, 2000 centres; error: % of wrong labels on 10 000 others."""
    X, y = load_mnist(return_X_y=True)
    return X[:20_000], y[:20_000], *load_mnist("test", return_X_y=True), Gaussian(5.0)


def protein():
    """41 157 rows of 9 inputs, the Gaussian with bandwidth 1, 2000 centres; error: mean square over the variance, on 4573 others."""
    X, y = load_regression("protein-tertiary-structure", return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    y, n = ((y - y.mean()) / y.std()).astype(np.float32), len(X) // 10
    return X[n:], y[n:], X[:n], y[:n], Gaussian(1.0)


TASKS = {"mnist": (mnist, 2000), "protein": (protein, 2000)}


def error(values, y):
    """Share of wrong labels in %, or the mean square over the variance."""
    if values.ndim == 2:
        return float(f"{100 * np.mean(values.argmax(1) != y):.4g}")
    return float(f"{np.mean((values - y) ** 2) / np.var(y):.4g}")


def watch(start, values, y):
    return {"seconds": float(f"{time.process_time() - start:.3g}"), "error": error(values, y)}


def whole(y):
    """Targets (n, r)."""
    return np.eye(10, dtype=np.float32)[y] if y.dtype.kind == "i" else y[:, None].astype(np.float32)


def ours(X, y, X_test, y_test, kernel, p):
    """rfteach's centres, after 1, 2, 3 and 5 passes."""
    start, tested, found = time.process_time(), 0.0, []
    model = CentersRegressor(kernel, centers=p, random_state=0)
    for passes in range(1, 6):
        model.partial_fit(X, whole(y))
        if passes in (1, 2, 3, 5):
            before = time.process_time()
            values = model.predict(X_test)
            found.append(watch(start + tested, values if values.shape[1] > 1 else values[:, 0], y_test) | {"passes": passes})
            tested += time.process_time() - before
    return found


def as_it_comes(X, y, X_test, y_test, kernel, p):
    """rfteach's estimator with its own choice of the number of epochs, a tenth of the rows held out."""
    start = time.process_time()
    if y.dtype.kind == "i":
        model = CentersClassifier(kernel, centers=p, random_state=0).fit(X, y)
        values = model.decision_function(X_test)
    else:
        model = CentersRegressor(kernel, centers=p, random_state=0).fit(X, y)
        values = model.predict(X_test)
    return [watch(start, values, y_test) | {"passes": model.n_iter_}]


def nystroem(X, y, X_test, y_test, kernel, p):
    """Nyström's features with ridge regression, rfteach.rbf, penalty 1e-6 n."""
    return ridge(NystroemFeatures(kernel, n_components=p, random_state=0), X, y, X_test, y_test)


def waves(X, y, X_test, y_test, kernel, p):
    """Random features with ridge regression, penalty 1e-6 n."""
    return ridge(RandomFourierFeatures(kernel, n_components=p, random_state=0), X, y, X_test, y_test)


def ridge(features, X, y, X_test, y_test):
    start = time.process_time()
    values = RandomFeatureRidge(features, 1e-6 * len(X)).fit(X, whole(y)).predict(X_test)
    return [watch(start, values if values.shape[1] > 1 else values[:, 0], y_test)]


def authors(X, y, X_test, y_test, kernel, p):
    """EigenPro 4, the authors' code with its settings, after 1 to 5 passes."""
    import eigenpro.kernels
    import eigenpro.models.sharded_kernel_machine as machine
    import eigenpro.solver
    import eigenpro.utils.device
    import eigenpro.utils.metrics

    Y, found, tested = whole(y), [], 0.0
    mean = Y.mean(0)
    X, Y, points = torch.from_numpy(X), torch.from_numpy(Y - mean), torch.from_numpy(X_test)
    device, k = eigenpro.utils.device.Device.create(False), lambda x, z: eigenpro.kernels.gaussian(x, z, kernel.bandwidth)

    def after_epoch(model, *_):
        nonlocal tested
        before = time.process_time()
        values = np.concatenate([model(some).numpy() for some in points.split(1000)]) + mean
        found.append(watch(start + tested, values if values.shape[1] > 1 else values[:, 0], y_test)
                     | {"passes": len(found) + 1})
        tested += time.process_time() - before
        return torch.tensor(0.0), 0.0

    eigenpro.utils.metrics.get_performance = after_epoch  # what it calls at the end of each epoch
    np.random.seed(0)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        start = time.process_time()
        Z = X[np.random.choice(len(X), p, replace=False)]
        model = machine.create_sharded_kernel_machine(Z, Y.shape[1], k, device, dtype=torch.float32, tmp_centers_coeff=2)
        eigenpro.solver.fit(model, X, Y, points, points, device, kernel=k, n_data_pcd_nyst_samples=2000,
                            n_model_pcd_nyst_samples=2000, n_data_pcd_eigenvals=100, n_model_pcd_eigenvals=100, epochs=5)
    return found


METHODS = {"centres": ours, "centres, as they come": as_it_comes, "EigenPro 4": authors, "Nyström": nystroem,
           "random features": waves}


def at_centres(p):
    """One pass."""
    return CentersRegressor(Gaussian(10.0), centers=p, max_iter=1, early_stopping=False, random_state=0)


MODELS = {"1000 centres, 1 pass": lambda: at_centres(1000), "2000 centres, 1 pass": lambda: at_centres(2000),
          "10 000 centres, 1 pass": lambda: at_centres(10_000),
          "ridge on 2000 random features": lambda: RandomFeatureRidge(
              RandomFourierFeatures(Gaussian(10.0), n_components=2000, random_state=0), 1e-6 * MILLION),
          "ridge on Nyström's features of 2000 centres": lambda: RandomFeatureRidge(
              NystroemFeatures(Gaussian(10.0), n_components=2000, random_state=0), 1e-6 * MILLION)}


def million(kept):
    """Fits to a million rows of 100 inputs from a file: seconds, error, and the memory that the fit adds, in MiB.

    The peak of what a process holds besides files (``RssAnon`` of Linux) is noted by its parent every 20 ms. What is in
    ``kept`` is not measured again; what is new is put there and yielded.
    """
    with tempfile.TemporaryDirectory() as folder:
        rng, path = np.random.default_rng(0), Path(folder) / "rows.npy"
        X = np.lib.format.open_memmap(path, "w+", np.float32, (MILLION, WIDE))
        for a in range(0, MILLION, 50_000):
            X[a : a + 50_000] = rng.standard_normal((50_000, WIDE), np.float32)
        X.flush()
        kept |= {"rows": MILLION, "inputs": WIDE, "file_mib": round(path.stat().st_size / 2**20)}
        runs = kept.setdefault("runs", {})
        for name in [name for name in MODELS if name not in runs]:
            done = subprocess.Popen([sys.executable, __file__, "--child", str(path), name], stdout=subprocess.PIPE, text=True,
                                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
            peak = 0
            while done.poll() is None:
                with contextlib.suppress(OSError, TypeError):
                    status = Path(f"/proc/{done.pid}/status").read_text()
                    peak = max(peak, int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]))
                time.sleep(0.02)
            found = json.loads(done.stdout.read().splitlines()[-1])
            runs[name] = {**found, "peak_mib": round(peak / 1024 - found.pop("before_mib"))}
            yield name, runs[name]


def target(X):
    """A function of three of the inputs, without the noise."""
    return np.sin(X[:, 0]) + X[:, 1] * np.tanh(X[:, 2])


def child(path, name):
    """One model fitted to the file, in a process of its own."""
    X, rng = np.load(path, mmap_mode="r"), np.random.default_rng(1)
    y = np.concatenate([target(X[a : a + 50_000]) for a in range(0, MILLION, 50_000)])
    y += 0.5 * rng.standard_normal(MILLION).astype(np.float32)
    fresh = rng.standard_normal((5000, WIDE)).astype(np.float32)
    CentersRegressor(Gaussian(10.0), centers=50, max_iter=1, random_state=0).fit(fresh, fresh[:, 0])
    before = int(re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
    start = time.process_time()
    model = MODELS[name]().fit(X, y)
    print(json.dumps({**watch(start, model.predict(fresh), target(fresh)), "before_mib": before}))


def main(argv=None):
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"all if none is named: {', '.join([*TASKS, 'million'])}")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    if args.child:
        return child(*args.child)
    if unknown := {*args.tasks} - {*TASKS, "million"}:
        parser.error(f"unknown task {min(unknown)!r}; there are {', '.join([*TASKS, 'million'])}")
    record = records.opened(args.out, "python benchmarks/large.py", "tasks", METHODS)
    record["about"] = {name: task.__doc__ for name, (task, _) in TASKS.items()}
    for name in args.tasks or [*TASKS, "million"]:
        kept = record["tasks"].setdefault(name, {})
        for model, found in million(kept) if name == "million" else ():
            print(name, model, found, flush=True)
            records.written(args.out, record, "tasks", [*TASKS, "million"])
        for method in args.methods if name in TASKS else ():
            if method in kept:
                continue
            load, p = TASKS[name]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    kept[method] = METHODS[method](*load(), p)
                except ModuleNotFoundError as missing:
                    print(f"{method} is left out: {missing}", file=sys.stderr)
                    continue
            print(name, method, kept[method], flush=True)
            records.written(args.out, record, "tasks", [*TASKS, "million"])
        records.written(args.out, record, "tasks", [*TASKS, "million"])
    return record


if __name__ == "__main__":
    main()
