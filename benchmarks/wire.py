"""Count what the network carries in an epoch of EigenPro with two processes: ``unshare -rn python benchmarks/wire.py``.

In a network namespace of its own (Linux) nothing else talks, so the counters of the loopback device are those of the
fit, headers and acknowledgements included. The result goes to ``benchmarks/results/wire.json``.
"""

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np

from rfteach.eigenpro import EigenProRegressor
from rfteach.kernels import Laplacian
from rfteach.processes import process_group

FILE = Path(__file__).resolve().parent / "results" / "wire.json"


def carried():
    """Bytes that the loopback device has carried so far."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def fit():
    """One of the two processes: counters after each epoch, of which the first one writes the difference."""
    rng, seen = np.random.default_rng(0), []
    X = rng.standard_normal((20_000, 20)).astype("float32")
    Y = np.stack([np.sin(X[:, j]) for j in range(10)], 1)
    with process_group("gloo", timeout=300) as (rank, size):
        model = EigenProRegressor(Laplacian(5.0), max_iter=4, early_stopping=False, random_state=0,
                                  callback=lambda *_: seen.append(carried()))
        model.fit_shared(X[rank::size], Y[rank::size])
    if rank == 0:
        epochs = np.diff(seen)
        record = {"n": len(X), "r": 10, "k": model.n_eigen_, "B": model.batch_size_, "b": 4,
                  "added_up": model.history_["bytes"][-1], "carried": int(np.median(epochs)),
                  "epochs": epochs.tolist(), "date": date.today().isoformat(), "command": "unshare -rn python benchmarks/wire.py"}
        FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(record)


if __name__ == "__main__":
    if "RANK" in os.environ:
        fit()
    else:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1",
                        __file__], check=True)
