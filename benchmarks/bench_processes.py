"""One process and two: sums of ridge regression with all threads and half of them each, EigenPro with one thread each."""

import multiprocessing
import os
import socket

import numpy as np
import torch

from harness import Contest
from rfteach.eigenpro import EigenProRegressor
from rfteach.features import RandomFourierFeatures
from rfteach.kernels import Laplacian
from rfteach.processes import process_group
from rfteach.streaming import StreamingRidge

TITLE = "Two processes against one: streaming ridge regression with all_reduce, random features included; EigenPro's fit_shared"
BLOCK = 1024


def settings(quick=False):
    """The sizes to try: samples n, inputs d, features N; for EigenPro whether rows of the kernel matrix are kept."""
    sizes = dict(n=1500, d=5, N=100) if quick else dict(n=100_000, d=20, N=2000)
    ridge = [dict(sizes, dtype=dtype) for dtype in ("float64", "float32")]
    kernel = dict(n=600, d=5) if quick else dict(n=12_000, d=50)
    return ridge + [dict(method="EigenPro", **kernel, keep=keep, dtype="float64") for keep in ("kept", "none kept")]


def ridge_sums(rank, size, n, d, N, dtype):
    """What takes in a share of the rows and combines."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    y = X[:, 0] + rng.standard_normal(n).astype(dtype)
    X, y = X[rank::size].copy(), y[rank::size].copy()
    features = RandomFourierFeatures("gaussian", np.sqrt(d), n_components=N, random_state=0).fit(X)

    def call():
        model = StreamingRidge(alpha=1.0)
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            model.partial_fit(features.transform(X[rows]), y[rows])
        return model.all_reduce().coef_

    return call


def eigenpro(rank, size, n, d, keep, dtype):
    """What fits with a share of the rows, five epochs, and gives values at 500 points."""
    rng = np.random.default_rng(0)
    T = rng.standard_normal((500, d)).astype(dtype)
    X = rng.standard_normal((n, d)).astype(dtype)
    Y = np.stack([np.sin(X[:, j]) for j in range(5)], 1)
    X, Y = (np.concatenate([A[p::2] for p in range(2)]) for A in (X, Y))  # so that two processes have this order
    mine = np.array_split(np.arange(n), size)[rank]

    def call():
        model = EigenProRegressor(Laplacian(2 * np.sqrt(d)), max_iter=5, early_stopping=False, random_state=0,
                                  n_subsample=min(500, n // 2), batch_size=256, cache="full" if keep == "kept" else None)
        return model.fit_shared(X[mine], Y[mine]).predict(T)

    return call


def worker(pipe, rank, size, port, threads, make, setting):
    """Wait for a message, do the work, answer."""
    torch.set_num_threads(threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    call = make(rank, size, **setting)
    with process_group("gloo", timeout=600):
        pipe.send("ready")
        while True:
            try:
                pipe.recv()
            except EOFError:  # the benchmark is over
                return
            pipe.send(call())


class Team:
    """Processes that are started once and work when called."""

    def __init__(self, size, threads, make, **setting):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context, self.pipes = multiprocessing.get_context("spawn"), []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (there, rank, size, port, threads, make, setting)
            context.Process(target=worker, args=arguments, daemon=True).start()
            self.pipes.append(here)
        for pipe in self.pipes:
            pipe.recv()

    def __call__(self):
        for pipe in self.pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in self.pipes][0]


def contest(method="ridge", **setting):
    """Both teams, the memory of which is their own."""
    return (contest_eigenpro if method == "EigenPro" else contest_ridge)(**setting)


def contest_ridge(n, d, N, dtype):
    """All threads in one process, or half of them in each of two."""
    threads, setting = torch.get_num_threads(), dict(n=n, d=d, N=N, dtype=dtype)
    one = Team(1, threads, ridge_sums, **setting)
    two = Team(2, max(1, threads // 2), ridge_sums, **setting)
    X = np.random.default_rng(1).standard_normal((1000, d))
    A = RandomFourierFeatures("gaussian", np.sqrt(d), n_components=N, random_state=0).fit_transform(X)

    def error(c):
        """Of the fitted values, relative, against those of one process."""
        exact = A @ one()
        return np.abs(A @ c - exact).max() / np.abs(exact).max()

    return Contest(cases={"one process": one, "two processes": two}, baseline="one process",
                   gemm=(N, BLOCK, N), errors={"two processes": error}, memory=False)


def contest_eigenpro(n, d, keep, dtype):
    """One thread in each process: the same rows, and rows by √2 more, with as many entries of K for each process."""
    setting, more = dict(d=d, keep=keep, dtype=dtype), int(2**0.5 * n)
    one, two = Team(1, 1, eigenpro, n=n, **setting), Team(2, 1, eigenpro, n=n, **setting)
    weak = Team(2, 1, eigenpro, n=more, **setting)

    def error(values):
        """Relative, against one process."""
        exact = one()
        return np.abs(values - exact).max() / np.abs(exact).max()

    return Contest(cases={"one process": one, "two processes": two, f"two processes, n={more}": weak},
                   baseline="one process", gemm=(256, d, n // 2), errors={"two processes": error}, memory=False)
