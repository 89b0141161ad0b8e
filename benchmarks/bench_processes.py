"""The same sums by one process with all threads, and by two processes with half of them each."""

import multiprocessing
import os
import socket

import numpy as np
import torch

from harness import Contest
from rfteach.features import RandomFourierFeatures
from rfteach.processes import process_group
from rfteach.streaming import StreamingRidge

TITLE = "Streaming ridge regression: two processes with all_reduce against one, random features included"
BLOCK = 1024


def settings(quick=False):
    """The sizes to try: samples n, inputs d, features N."""
    sizes = dict(n=1500, d=5, N=100) if quick else dict(n=100_000, d=20, N=2000)
    return [dict(sizes, dtype=dtype) for dtype in ("float64", "float32")]


def worker(pipe, rank, size, port, threads, n, d, N, dtype):
    """Wait for a message, take in a share of the rows, combine, answer."""
    torch.set_num_threads(threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    y = X[:, 0] + rng.standard_normal(n).astype(dtype)
    X, y = X[rank::size].copy(), y[rank::size].copy()
    features = RandomFourierFeatures("gaussian", np.sqrt(d), n_components=N, random_state=0).fit(X)
    with process_group("gloo", timeout=600):
        pipe.send("ready")
        while True:
            try:
                pipe.recv()
            except EOFError:  # the benchmark is over
                return
            model = StreamingRidge(alpha=1.0)
            for start in range(0, len(X), BLOCK):
                rows = slice(start, start + BLOCK)
                model.partial_fit(features.transform(X[rows]), y[rows])
            model.all_reduce()
            pipe.send(model.coef_)


class Team:
    """Processes that are started once and work when called."""

    def __init__(self, size, threads, **setting):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context, self.pipes = multiprocessing.get_context("spawn"), []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (there, rank, size, port, threads, *setting.values())
            context.Process(target=worker, args=arguments, daemon=True).start()
            self.pipes.append(here)
        for pipe in self.pipes:
            pipe.recv()

    def __call__(self):
        for pipe in self.pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in self.pipes][0]


def contest(n, d, N, dtype):
    """Both teams, the memory of which is their own."""
    threads, setting = torch.get_num_threads(), dict(n=n, d=d, N=N, dtype=dtype)
    one = Team(1, threads, **setting)
    two = Team(2, max(1, threads // 2), **setting)
    X = np.random.default_rng(1).standard_normal((1000, d))
    A = RandomFourierFeatures("gaussian", np.sqrt(d), n_components=N, random_state=0).fit_transform(X)

    def error(c):
        """Of the fitted values, relative, against those of one process."""
        exact = A @ one()
        return np.abs(A @ c - exact).max() / np.abs(exact).max()

    return Contest(cases={"one process": one, "two processes": two}, baseline="one process",
                   gemm=(N, BLOCK, N), errors={"two processes": error}, memory=False)
