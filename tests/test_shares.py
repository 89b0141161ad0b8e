"""Several processes: EigenPro's fit is that of one, losses end it and are survived, what does not fit is refused by all."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from rfteach.eigenpro import EigenProClassifier, EigenProRegressor
from rfteach.kernels import Laplacian

COMMON = textwrap.dedent("""
    import os, re, sys, time
    import numpy as np
    import torch
    import torch.distributed as dist
    from rfteach.eigenpro import EigenProClassifier, EigenProRegressor
    from rfteach.features import RandomFourierFeatures
    from rfteach.kernels import Laplacian
    from rfteach.processes import Talk, process_group

    def data():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(301, 4))
        return X, np.c_[np.sin(X[:, 0]), X[:, 1] ** 2] + 0.1 * rng.normal(size=(301, 2)), rng.normal(size=(40, 4))

    X, Y, T = data()
    LABELS = np.array(["ant", "bee", "cat"])[np.digitize(Y[:, 0], [-0.4, 0.4])]
    PLAIN = dict(early_stopping=False, max_iter=4, batch_size=64, n_subsample=100, random_state=0)

    def models():
        \"\"\"Name, model, targets, rows to validate on.\"\"\"
        k = Laplacian(2.0)
        yield "plain", EigenProRegressor(k, **PLAIN), Y, ()
        yield "nothing kept", EigenProRegressor(k, cache=None, **PLAIN), Y[:, 0], ()
        yield "some kept", EigenProRegressor(k, cache_size=0.2, **PLAIN), Y[:, 0], ()
        yield "momentum", EigenProRegressor(k, momentum=True, **PLAIN), Y, ()
        yield "given step", EigenProRegressor(k, step_size=3.0, **PLAIN), Y, ()
        yield "median, by parts held out", EigenProRegressor("gaussian", max_iter=8, random_state=0), Y, ()
        yield "validated", EigenProRegressor(k, max_iter=30, random_state=0, n_iter_no_change=2), Y, (T, T[:, :2])
        yield "classes", EigenProClassifier(k, max_iter=5, random_state=0), LABELS, (T, LABELS[:40])
        yield "float32", EigenProRegressor(k, dtype="float32", **PLAIN), Y, ()
        yield "few rows", EigenProRegressor(k, early_stopping=False, max_iter=3, random_state=0), Y, (), 5

    def shown(model):
        \"\"\"What a fit is compared by.\"\"\"
        values = model.decision_function(T) if hasattr(model, "classes_") else model.predict(T)
        history = [model.history_[name] for name in ("loss", "train_error")]
        return [values, model.dual_coef_, *map(np.array, history), model.X_fit_, model.validation_loss_]
""")

SCRIPT = COMMON + textwrap.dedent("""
    folder, wrong = sys.argv[1], sys.argv[2]

    if wrong == "twice":  # what the first process has counts twice
        once = Talk.add_up
        Talk.add_up = lambda self, T: once(self, T * (2 if self.rank == 0 else 1))
    if wrong == "left out":
        once = Talk.add_up
        Talk.add_up = lambda self, T: once(self, T * (self.rank != 1))
    if wrong == "correction alone":  # the sum over the subsample is not made
        once = Talk.add_up
        Talk.add_up = lambda self, T: T if T.shape[0] == 10 else once(self, T)

    with process_group("gloo", timeout=60) as (rank, size):
        cuts = [0, 40, 301] if size == 2 else [0, 1, 200, 301]
        for name, model, y, val, *n in models():
            rows = np.arange(301 if not n else n[0])
            mine = np.array_split(rows, size)[rank] if n else rows[cuts[rank] : cuts[rank + 1]]
            model.fit_shared(X[mine], y[mine], *val)
            np.savez(f"{folder}/{name}{rank}.npz", *shown(model))
            if wrong:
                break
        seen = []
        model = EigenProRegressor(Laplacian(2.0), callback=lambda model, epoch: seen.append(
            (model.score(X, Y), epoch.training_error())) or rank == 1 and epoch.n_iter == 2, **PLAIN)
        mine = slice(cuts[rank], cuts[rank + 1])
        model.fit_shared(X[mine], Y[mine])
        assert model.n_iter_ == 2 and len(seen) == 2 and abs(seen[1][0] - model.score(X, Y)) < 1e-12
        model.partial_fit(X[:9] + 1, Y[:9])  # an estimator like any other
        model.set_params(warm_start=True, callback=None)
""")


def launched(script, *arguments, n=2, **more):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", script]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=300, **more)


@pytest.fixture(scope="module")
def one():
    """The module that the processes run, and what one process gives."""
    space = {}
    exec(COMMON, space)
    found = {}
    for name, model, y, val, *n in space["models"]():
        rows = slice(0, n[0] if n else 301)
        found[name] = space["shown"](model.fit(space["X"][rows], y[rows], *val))
    return space, found


def compared(folder, found, size):
    """The largest difference of each model's facts from those of one process, relative to them."""
    apart = {}
    for name, right in found.items():
        for rank in range(size):
            with np.load(folder / f"{name}{rank}.npz") as file:
                for j, expected in enumerate(right):
                    got = file[f"arr_{j}"]
                    assert got.shape == expected.shape, (name, j)
                    if expected.size:
                        error = np.abs(got - expected).max() / (np.abs(expected).max() or 1)
                        apart[name] = max(apart.get(name, 0.0), float(error))
    return apart


@pytest.mark.parametrize("size", [2, 3])
def test_processes_give_the_fit_of_one(one, tmp_path, size):
    """By torchrun, with unequal shares: values, coefficients, history, rows, and the choice of epochs."""
    file = tmp_path / "fit.py"
    file.write_text(SCRIPT)
    done = launched(file, tmp_path, "", n=size)
    assert done.returncode == 0, done.stderr
    apart = compared(tmp_path, one[1], size)
    print(apart)
    assert apart.pop("float32") < 2e-4
    assert max(apart.values()) < 1e-9, apart
