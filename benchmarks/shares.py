"""What two processes carry, and how they share the work, in an epoch of EigenPro: ``unshare -rn python benchmarks/shares.py``.

In a network namespace of its own (Linux) nothing else talks, so the counters of the loopback device are those of the
fit, headers and acknowledgements included. Seconds are those of the processor in the busier process, which other work
on the machine leaves as they are; ``wall`` is what the clock said. The result goes to
``benchmarks/results/shares.json``.
"""

import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

from rfteach.eigenpro import EigenProRegressor
from rfteach.kernels import Laplacian
from rfteach.processes import process_group

FILE = Path(__file__).resolve().parent / "results" / "shares.json"
RUNS = [("one process", 1, 16_000), ("two processes", 2, 16_000), ("two processes, √2 times the rows", 2, 22_627)]


def carried():
    """Bytes that the loopback device has carried so far."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def fit(n, keep):
    """One of the processes: what each epoch took; the first one prints it for all."""
    torch.set_num_threads(1)
    rng, seen = np.random.default_rng(0), []
    X = rng.standard_normal((n, 50)).astype("float32")
    Y = np.stack([np.sin(X[:, j]) for j in range(10)], 1)
    with process_group("gloo", timeout=300) as (rank, size):
        model = EigenProRegressor(
            Laplacian(10.0), max_iter=4, early_stopping=False, random_state=0, n_subsample=500, batch_size=512,
            cache="full" if keep else None, callback=lambda *_: seen.append((carried(), time.process_time())))
        model.fit_shared(X[rank::size], Y[rank::size])
        took = [None] * size
        torch.distributed.all_gather_object(took, np.diff(seen, axis=0).tolist())
    if rank == 0:
        busier = np.max(took, axis=0)  # of each epoch but the first
        print(json.dumps({
            "n": n, "kept": keep, "processes": size, "r": 10, "k": model.n_eigen_, "B": model.batch_size_, "b": 4,
            "added_up": model.history_["bytes"][-1], "carried": int(np.median(busier[:, 0])),
            "seconds": round(float(np.median(busier[:, 1])), 4),
            "wall": round(float(np.median(model.history_["seconds"][1:])), 4)}))


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rows = []
    for keep in (False, True):
        for name, size, n in RUNS:
            command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}",
                       "--master-addr=127.0.0.1", __file__, str(n), str(int(keep))]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append({"case": name, **json.loads(done.stdout)})
            print(rows[-1], flush=True)
    record = {"date": date.today().isoformat(), "command": "unshare -rn python benchmarks/shares.py",
              "load": round(os.getloadavg()[1], 1), "cores": os.cpu_count(), "rows": rows}
    FILE.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "RANK" in os.environ:
        fit(int(sys.argv[1]), bool(int(sys.argv[2])))
    else:
        main()
