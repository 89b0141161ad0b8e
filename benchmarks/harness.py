"""Timings side by side: interleaved runs, ratios with their spread, the machine's limits.

A benchmark is a module ``bench_NAME.py`` with three names, which ``run.py`` puts to work:

- ``TITLE``, one line;
- ``settings(quick)``, a list of dictionaries of keyword arguments: the sizes and dtypes to try;
- ``contest(**setting)``, which prepares the data of one setting and returns a `Contest`.
"""

import os
import platform
import re
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Callable

import numpy as np
import torch
from torch.nn.functional import conv2d
from threadpoolctl import threadpool_info


@dataclass(frozen=True)
class Contest:
    """Calls that do the same job, and what they are measured against.

    Attributes
    ----------
    cases : dict of str to callable
        Calls without arguments.
    baseline : str
        The case that ratios refer to, usually the peer's.
    limit : tuple of str
        Cases that do only what cannot be left out, such as the matrix product, on memory that is
        already there; the fastest of them is the limit.
    limit_is : str
        What they do, in words.
    parts : tuple of str
        Cases that do the limit and more of what cannot be left out, to show what the rest of the time goes into.
    gemm : tuple of int
        (m, k, n) of the matrix product inside, for `limits`.
    errors : dict of str to callable
        For a case, what takes its result and returns its largest error against float64.
    memory : bool
        Whether extra memory says anything; it does not where other processes or a card do the work.
    place : {"cpu", "cuda"}
        Where the work is done.
    """

    cases: dict[str, Callable]
    baseline: str
    limit: tuple[str, ...] = ()
    limit_is: str = ""
    parts: tuple[str, ...] = ()
    gemm: tuple[int, int, int] = (1000, 1000, 1000)
    errors: dict[str, Callable] = field(default_factory=dict)
    memory: bool = True
    place: str = "cpu"

    def __post_init__(self):
        if self.baseline not in self.cases:
            raise ValueError(f"baseline must be one of {list(self.cases)}, got {self.baseline!r}")
        for name in ("limit", "parts"):
            if not (isinstance(what := getattr(self, name), tuple) and set(what) <= set(self.cases)):
                raise ValueError(f"{name} must be a tuple of some of {list(self.cases)}, got {what!r}")


def finished(call, place):
    """The call; on a card it ends when the card has done what it was given."""
    def to_the_end():
        result = call()
        torch.cuda.synchronize()
        return result

    return call if place == "cpu" else to_the_end


def warm(shape, dtype, place="cpu"):
    """A tensor whose memory is already there: huge pages where NumPy gets them, each one touched."""
    if place != "cpu":
        return torch.zeros(shape, dtype=getattr(torch, dtype), device=place)
    return torch.from_numpy(np.empty(shape, dtype)).zero_()


def convolved(X, Y):
    """X Yᵀ for X (n, k) and Y (m, k), in new memory: as a convolution with filters of one pixel, which torch gives to oneDNN."""
    image, filters = X.contiguous().view(1, len(X), 1, -1), Y.contiguous().view(len(Y), 1, 1, -1)
    # dilated, which is nothing for one pixel, because with one thread torch gives no others to oneDNN
    return conv2d(image.permute(0, 3, 1, 2), filters.permute(0, 3, 1, 2), dilation=(1, 2))[0, :, :, 0].T


def quartiles(values):
    """Median, first and third quartile, to four significant digits."""
    return {key: float(f"{np.quantile(values, q):.4g}")
            for key, q in (("median", 0.5), ("q1", 0.25), ("q3", 0.75))}


def cpu_of_others():
    """CPU seconds that all but this process have used since the machine started; 0 if not known."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq + steal) / ticks - sum(os.times()[:2])


def compare(cases, *, repeats=15, baseline=None, limit=(), patience=4, settle=0.15, seed=0):
    """Time calls against each other.

    In each of ``repeats`` rounds every case runs once, in an order drawn afresh, so that what else
    the machine does falls on all of them alike. Ratios are taken within a round, where the two runs
    are neighbours in time, and then summarised.

    Parameters
    ----------
    cases : dict of str to callable
        Calls without arguments. Making the result counts, releasing it does not.
    repeats : int
        Rounds that count.
    patience : int, default 4
        A round is noisy when other processes took more than 5 % of a core meanwhile (known on Linux
        only). Rounds go on until ``repeats`` were quiet, for ``patience * repeats`` rounds at most;
        the quietest ``repeats`` of all count.
    baseline : str or None
        Name of a case.
    limit : tuple of str
        Names of cases; the one with the least median is the limit.
    settle : float, default 0.15
        Before each run the case runs uncounted for this many seconds, once at least unless it is 0:
        the threads of NumPy's and of torch's BLAS keep spinning for 30 to 120 ms after their work and
        would slow the next case, and cores that were left idle start slowly. A case that takes 20
        times as long hardly notices, and runs uncounted before the first round only.
    seed : int
        For the order.

    Returns
    -------
    dict of str to dict
        For each case ``seconds``; ``speedup``, the baseline's seconds over the case's; ``of_limit``,
        the limit's seconds over the case's: each with median and quartiles; ``samples``, the seconds
        of each round; and ``noise``, the cores that other processes kept busy in each round.
    """
    rng = np.random.default_rng(seed)
    rounds = []  # (what others took, seconds by case)
    seconds = dict.fromkeys(cases, 0.0)
    while len(rounds) < patience * repeats and sum(noise <= 0.05 for noise, _ in rounds) < repeats:
        last, seconds, start, others = seconds, {}, time.perf_counter(), cpu_of_others()
        for name in rng.permutation(list(cases)):
            settled = time.perf_counter() + settle
            while last[name] < 20 * settle and time.perf_counter() < settled:
                cases[name]()
            begin = time.perf_counter()
            result = cases[name]()
            seconds[name] = time.perf_counter() - begin
            del result
        noise = (cpu_of_others() - others) / (time.perf_counter() - start)
        rounds.append((round(max(0.0, noise), 3), seconds))
    rounds = sorted(rounds, key=lambda entry: entry[0])[:repeats]
    samples = {name: [seconds[name] for _, seconds in rounds] for name in cases}
    fastest = min(limit, key=lambda name: np.median(samples[name]), default=None)
    rows = {}
    for name, seconds in samples.items():
        rows[name] = {"seconds": quartiles(seconds)}
        for key, other in (("speedup", baseline), ("of_limit", fastest)):
            if other is not None:
                rows[name][key] = quartiles(np.divide(samples[other], seconds))
        rows[name] |= {"samples": [float(f"{t:.4g}") for t in seconds], "noise": [noise for noise, _ in rounds]}
    return rows


def limits(gemm, dtype, *, place="cpu", repeats=5, **options):
    """What this machine can do, by the fastest of torch, NumPy and, for products in float32, oneDNN; what its card can do, by torch.

    Parameters
    ----------
    gemm : (m, k, n)
        Shape of the product, m×k by k×n, into memory that is already there.
    dtype : str
        "float64" or "float32".
    place : {"cpu", "cuda"}
    repeats, options
        For `compare`.

    Returns
    -------
    dict
        ``gemm`` in 1e9 FLOP/s (2mkn per product), ``copy`` in 1e9 bytes/s read and written,
        ``cos`` and ``exp`` in 1e9 entries/s, arguments in [-10, 0]; each with who reached it. The
        last three on arrays of 32 MB, on a card of 1 GB. From medians.
    """
    m, k, n = gemm
    rng, known = np.random.default_rng(0), ("torch", "NumPy", "oneDNN") if place == "cpu" else ("torch",)

    def uniform(*shape):
        if place == "cpu":
            return torch.from_numpy(rng.random(shape).astype(dtype))
        return torch.rand(shape, dtype=getattr(torch, dtype), device=place)

    size = (32_000_000 if place == "cpu" else 2**30) // np.dtype(dtype).itemsize
    At, Bt, Ct, xt, yt = uniform(m, k), uniform(k, n), uniform(m, n), uniform(size).mul_(-10), uniform(size)
    A, B, C, x, y = (T.cpu().numpy() for T in (At, Bt, Ct, xt, yt)) if place == "cpu" else [None] * 5
    jobs = {"gemm": (2 * m * k * n, lambda: torch.mm(At, Bt, out=Ct), lambda: np.dot(A, B, out=C)),
            "copy": (2 * xt.nbytes, lambda: yt.copy_(xt), lambda: np.copyto(y, x)),
            "cos": (size, lambda: torch.cos(xt, out=yt), lambda: np.cos(x, out=y)),
            "exp": (size, lambda: torch.exp(xt, out=yt), lambda: np.exp(x, out=y))}
    if place == "cpu" and dtype == "float32":
        columns = Bt.T.contiguous()
        jobs["gemm"] += (lambda: convolved(At, columns),)
    cases = {(job, by): finished(call, place) for job, (_, *calls) in jobs.items() for by, call in zip(known, calls)}
    rows = compare({f"{job} {by}": call for (job, by), call in cases.items()},
                   repeats=repeats, **options)
    found = {}
    for job, (work, *_) in jobs.items():
        seconds, by = min((rows[f"{job} {by}"]["seconds"]["median"], by) for other, by in cases if other == job)
        found[job] = {"rate": float(f"{work / seconds / 1e9:.4g}"), "by": by}
    return found


def machine():
    """The processor, its threads, a card if there is one, and the versions that timings depend on."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        cpu = found[1] if found else cpu
    pools = sorted({f"{p['internal_api']} {p.get('version') or ''}".strip() + f", {p['num_threads']} threads"
                    for p in threadpool_info()})
    packages = ("numpy", "scipy", "torch", "scikit-learn")
    card = {"card": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"cpu": cpu, **card, "cores": os.cpu_count(), "torch_threads": torch.get_num_threads(),
            "thread_pools": pools, "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(), **{name: version(name) for name in packages}}
