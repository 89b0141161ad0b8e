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
        left = [model.left_out_.rows, model.left_out_.predictions] if hasattr(model, "left_out_") else []
        return [values, model.dual_coef_, *map(np.array, history), model.X_fit_, model.validation_loss_, *left]
""")

SCRIPT = COMMON + textwrap.dedent("""
    folder = sys.argv[1]

    right = Talk.add_up
    sums = {
        "": right,
        "twice": lambda self, T: right(self, T * (2 if self.rank == 0 else 1)),
        "left out": lambda self, T: right(self, T * (self.rank != 1)),
        "correction alone": lambda self, T: T if len(T) == 10 else right(self, T),  # no sum over the subsample
    }

    with process_group("gloo", timeout=250) as (rank, size):
        cuts = [0, 40, 301] if size == 2 else [0, 1, 200, 301]
        for name, model, y, val, *n in models():
            rows = np.arange(301 if not n else n[0])
            mine = np.array_split(rows, size)[rank] if n else rows[cuts[rank] : cuts[rank + 1]]
            model.fit_shared(X[mine], y[mine], *val)
            np.savez(f"{folder}/{name}{rank}.npz", *shown(model))
        mine = slice(cuts[rank], cuts[rank + 1])
        for wrong, Talk.add_up in sums.items():
            try:
                values = EigenProRegressor(Laplacian(2.0), step_size=1.0, **PLAIN).fit_shared(X[mine], Y[mine]).predict(T)
            except ValueError:  # it diverges
                values = np.full((len(T), 2), np.inf)
            np.save(f"{folder}/wrong {wrong}{rank}.npy", values)
        Talk.add_up = right
        seen = []
        model = EigenProRegressor(Laplacian(2.0), callback=lambda model, epoch: seen.append(
            (model.score(X, Y), epoch.training_error())) or rank == 1 and epoch.n_iter == 2, **PLAIN)
        model.fit_shared(X[mine], Y[mine])
        assert model.n_iter_ == 2 and len(seen) == 2 and abs(seen[1][0] - model.score(X, Y)) < 1e-12
        model.set_params(callback=(lambda model, epoch: epoch.n_iter == 2) if rank == 1 else None)  # that of one process
        assert model.fit_shared(X[mine], Y[mine]).n_iter_ == 2
        model.partial_fit(X[:9] + 1, Y[:9])  # an estimator like any other
        model.set_params(warm_start=True, callback=None)
""")


def launched(script, *arguments, n=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", script]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=600)


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
    done = launched(file, tmp_path, n=size)
    assert done.returncode == 0, done.stderr
    apart = compared(tmp_path, one[1], size)
    assert apart.pop("float32") < 1e-4
    assert max(apart.values()) < 1e-9, apart
    values = {wrong: np.load(tmp_path / f"wrong {wrong}0.npy") for wrong in ("", "twice", "left out", "correction alone")}
    for wrong, got in values.items():  # what is compared here refuses what a wrong sum gives
        assert not wrong or np.abs(got - values[""]).max() > 1e-3, wrong


REFUSED = COMMON + textwrap.dedent("""
    with process_group("gloo", timeout=250) as (rank, size):
        mine, k = slice(rank, None, size), Laplacian(2.0)
        def refused(X, y, *val, model=EigenProRegressor, **given):
            model = model(**{"kernel": k, **PLAIN, **given})
            try:
                model.fit_shared(X, y, *val)
            except (ValueError, TypeError, OSError) as error:
                os.write(1, f"{rank}: {type(error).__name__}: {error}\\n".encode())
            assert not hasattr(model, "history_"), "a refused call left something"

        bad = X[mine].copy()
        bad[0, 0] = np.nan if rank else 0.0
        refused(bad, Y[mine])
        refused(X[mine][: 0 if rank else None], Y[mine][: 0 if rank else None])
        refused(X[mine][:, : 4 - rank], Y[mine])
        refused(X[mine], Y[mine][:, : 2 - rank])
        refused(X[mine].astype(["f4", "f8"][rank]), Y[mine])
        refused(X[mine], Y[mine], max_iter=3 + rank)
        refused(X[mine], Y[mine], kernel=Laplacian(2.0 + rank))
        refused(X[mine], Y[mine], random_state=rank)
        refused(X[mine], Y[mine], T + rank, T[:, :2])
        refused(X[mine], Y[mine], *((T, T[:, :2]) if rank else ()))
        refused(X[mine], Y[mine], feature_map=RandomFourierFeatures())
        refused(X[mine], Y[mine], cache="half")
        refused(X[mine], Y[mine], warm_start=True)
        refused(X[mine], Y[mine], step_size=1e6)
        refused(X[mine], Y[mine], checkpoint=f"{sys.argv[1]}/none/run.npz")
        refused(X[mine], Y[mine], checkpoint=f"{sys.argv[1]}/foreign")
        refused(X[mine], ["ant"] * len(X[mine]), model=EigenProClassifier)
        refused(X[mine], Y[mine][:-1])
        # what may differ, and labels that one process does not have
        labels = LABELS.copy()
        labels[::2] = np.where(LABELS[::2] == "cat", "ant", LABELS[::2])
        given = dict(verbose=False, random_state=np.random.default_rng(rank), max_iter=3)
        model = EigenProClassifier(k, **{**PLAIN, **given}).fit_shared(X[mine], labels[mine])
        assert list(model.classes_) == ["ant", "bee", "cat"]
    try:
        EigenProRegressor(k).fit_shared(X, Y)
    except RuntimeError as error:
        os.write(1, f"{rank}: {error}\\n".encode())
""")


def test_what_does_not_fit_is_refused_by_all(tmp_path):
    """Both processes say what is wrong, and where; none waits for the other."""
    file = tmp_path / "fit.py"
    file.write_text(REFUSED)
    (tmp_path / "foreign").write_text("no checkpoint")
    done = launched(file, tmp_path)
    assert done.returncode == 0, done.stderr
    said = [sorted(line[3:] for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")) for rank in (0, 1)]
    assert len(said[0]) == len(said[1]) == 19
    for words in ["ValueError: process 1: X contains NaN or infinity (1 NaN, 0 infinite", "ValueError: process 1: X: Found array with 0 sample",
                  "feature_map=RandomFourierFeatures", "cache='half'", "warm_start=True",
                  "ValueError: the iteration diverges with step_size=1e+06", "is in a folder that is not there",
                  "foreign' is not a checkpoint of EigenPro", "needs at least 2 classes", "ValueError: process 0: X and y must have as many rows, got 151 and 150",
                  "there is no process group: start with torchrun"]:
        assert all(any(words in line for line in lines) for lines in said), (words, said)
    for rank, other in ((0, 1), (1, 0)):
        values = {"number of columns": (4, 3), "number of outputs": (2, 1), "dtype of X": ("torch.float32", "torch.float64"),
                  "max_iter": (3, 4), "kernel": (repr(Laplacian(2.0)), repr(Laplacian(3.0))), "random_state": (0, 1)}
        for name, both in values.items():
            words = f"ValueError: process {other} has {name} = {both[other]}, this one has {both[rank]}"
            assert words in said[rank], (words, said[rank])
        assert sum(f"process {other} has X_val = " in line for line in said[rank]) == 2


LOST = COMMON + textwrap.dedent("""
    folder, how, timeout, last = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])

    def lose(model, epoch):
        if rank == 1 and epoch.n_iter == 4:
            os.write(1, b"lost\\n")
            time.sleep(600)

    with process_group("gloo", timeout=timeout) as (rank, size):
        mine = slice(rank, None, size)
        model = EigenProRegressor(Laplacian(2.0), checkpoint=f"{folder}/run.npz", momentum=True,
                                  callback=lose if how == "lost" else None, **{**PLAIN, "max_iter": last})
        try:
            model.fit_shared(X[mine], Y[mine])
        finally:
            assert how == "went on" or not hasattr(model, "history_")
        np.save(f"{folder}/{how}{rank}.npy", model.predict(T))
""")


def in_order(X, size=2):
    """Rows in the order in which the processes have them."""
    return np.concatenate([X[rank::size] for rank in range(size)])


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_process_ends_the_fit(one, tmp_path, how):
    """In the fourth epoch process 1 is killed, or hangs; process 0 ends by itself, and the file has three epochs."""
    file, limit = tmp_path / "fit.py", "60" if how == "killed" else "3"
    file.write_text(LOST)
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(28500 + os.getpid() % 900), "WORLD_SIZE": "2"}
    start = [sys.executable, file, tmp_path, "lost", limit, "6"]
    ranks = [subprocess.Popen(start, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) for rank in (0, 1)]
    try:
        assert ranks[1].stdout.readline() == "lost\n"
        began = time.monotonic()
        if how == "killed":
            ranks[1].send_signal(signal.SIGKILL)
            ranks[1].wait()
        _, errors = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 1
        assert "process 0 of 2: another process was lost, or did not answer in time, and the fit did not end" in errors
        assert time.monotonic() - began < 40
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    X, Y, T = (one[0][name] for name in "XYT")
    given = {**one[0]["PLAIN"], "momentum": True, "kernel": Laplacian(2.0)}
    right = EigenProRegressor(**{**given, "max_iter": 6}).fit(in_order(X), in_order(Y))
    saved = (tmp_path / "run.npz").read_bytes()
    alone = EigenProRegressor(**{**given, "max_iter": 3}, checkpoint=tmp_path / "run.npz").fit(in_order(X), in_order(Y))
    assert alone.n_iter_ == 3 and (tmp_path / "run.npz").read_bytes() == saved  # that of the third epoch
    alone.set_params(max_iter=6).fit(in_order(X), in_order(Y))
    assert alone.n_iter_ == 6 and len(alone.history_["bytes"]) == 3
    np.testing.assert_allclose(alone.predict(T), right.predict(T), rtol=0, atol=1e-12)
    (tmp_path / "run.npz").write_bytes(saved)
    if how == "stopped":  # the file of one process is as good
        (tmp_path / "run.npz").unlink()
        EigenProRegressor(**{**given, "max_iter": 2}, checkpoint=tmp_path / "run.npz").fit(in_order(X), in_order(Y))
    done = launched(file, tmp_path, "went on", "60", "6")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        np.testing.assert_allclose(np.load(tmp_path / f"went on{rank}.npy"), right.predict(T), rtol=0, atol=1e-12)


SOLVE = COMMON + textwrap.dedent("""
    from rfteach.conjugate import gram_cg_shared
    from rfteach.kernel_ridge import gram_times

    folder, w, k = sys.argv[1], np.arange(301.0), Laplacian(2.0)
    ways = {"held": {}, "tiles": {"memory": 0}, "weights": {"w": w}, "alone": {"fit_intercept": False, "n_landmarks": 0},
            "one output": {}, "single": {}}

    def problem(name, rows):
        kind = np.float32 if name == "single" else float
        given = {**ways[name], "tol": 1e-4 if name == "single" else 1e-10, "max_iter": 900}
        if "w" in given:
            given["w"] = w[rows]
        return (k, X[rows].astype(kind), (Y[:, 0] if name == "one output" else Y)[rows].astype(kind), 0.1), given

    if __name__ == "__main__":
        with process_group("gloo", timeout=250) as (rank, size):
            mine, products = slice(0, 1) if rank == 0 else slice(1, 301), []
            kept = Talk.add_up
            Talk.add_up = lambda self, T: (products.append(T.nbytes), kept(self, T))[1]
            for name in ways:
                products.clear()
                (*given, lam), options = problem(name, mine)
                found = gram_cg_shared(*given, lam, **options)
                n = 300 if name == "weights" else 301  # rows with a weight
                assert len(products) > found.fit.n_iter and set(products) <= {8 * n, 16 * n}, (name, products)  # 8nk bytes each
                values = gram_times(k, T, found.X, found.fit.coef) + found.fit.intercept
                np.savez(f"{folder}/{name}{rank}.npz", found.fit.coef, values, found.fit.residual)
            Talk.add_up = lambda self, T: kept(self, T * (2 if self.rank == 0 else 1))  # one process counts twice
            found = gram_cg_shared(*given, lam, **options)
            np.save(f"{folder}/twice{rank}.npy", gram_times(k, T, found.X, found.fit.coef) + found.fit.intercept)
            Talk.add_up = kept
            for change in ({"lam": 0.1 + rank}, {"X": X[mine][:, : 4 - rank]}, {"Y": Y[mine][rank:]}, {"lam": -1.0},
                           {"w": w[mine]} if rank else {}, {"tol": 1e-3 + rank}):
                try:
                    gram_cg_shared(**{"kernel": k, "X": X[mine], "Y": Y[mine], "lam": 0.1, **change})
                except ValueError as error:
                    os.write(1, f"{rank}: {error}\\n".encode())
            if sys.argv[2] == "lost":
                if rank == 1:
                    os._exit(9)
                gram_cg_shared(k, X, Y, 0.1)
""")


def test_processes_give_the_solution_of_one(tmp_path):
    """Exact solve: matrix held and by tiles, weights, one row in one process and the others in the other one."""
    from rfteach.conjugate import gram_cg
    from rfteach.kernel_ridge import gram_times

    file, space = tmp_path / "fit.py", {"__name__": "solve"}
    file.write_text(SOLVE)
    exec(SOLVE.replace("sys.argv[1]", "''"), space)
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(27500 + os.getpid() % 900), "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, file, tmp_path, "lost"], env={**env, "RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in (0, 1)]
    told = [process.communicate(timeout=600) for process in ranks]
    assert "another process was lost, or did not answer in time, and the solve did not end" in told[0][1]
    for name in space["ways"]:
        given, options = space["problem"](name, slice(0, 301))
        found = gram_cg(*given, **options)
        values = gram_times(given[0], space["T"], given[1], found.coef) + found.intercept
        for rank in (0, 1):
            with np.load(tmp_path / f"{name}{rank}.npz") as file:
                close = 1e-3 if name == "single" else 1e-8
                np.testing.assert_allclose(file["arr_0"], found.coef, rtol=0, atol=close * np.abs(found.coef).max())
                np.testing.assert_allclose(file["arr_1"], values, rtol=0, atol=close)
                assert file["arr_2"] <= options["tol"]
    assert np.abs(np.load(tmp_path / "twice0.npy") - values).max() > 0.01
    for rank, other in ((0, 1), (1, 0)):
        out = told[rank][0]
        assert f"process {other} has lam = {0.1 + other}, this one has {0.1 + rank}" in out
        assert f"process {other} has rows of X with shape and dtype = ({4 - other},)" in out
        assert "process 1: X and Y must have as many rows, got 300 and 299" in out
        assert "lam must be" in out and f"process {other} has arguments = " in out and out.count("\n") == 6
