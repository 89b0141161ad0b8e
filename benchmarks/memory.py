"""The peak memory of a call, measured in a process of its own."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path


def extra_memory(module, case, setting):
    """Peak memory of one call beyond what was there before it and beyond its result, in bytes.

    A child process prepares the contest of ``setting`` and of a small one, runs the case once on
    the small one (so that libraries are loaded and threads started), resets the system's high-water
    mark of its resident set (Linux: 5 into ``/proc/self/clear_refs``), notes the resident set, and
    calls. The answer is high-water mark − resident set before − bytes of the result. Allocations of
    64 KiB and more get pages of their own and give them back when released (glibc's
    ``MALLOC_MMAP_THRESHOLD_``), so pages that the allocator keeps hide nothing. Huge pages make the
    figure uncertain by some MB.

    Parameters
    ----------
    module : str
        Name of the benchmark's module.
    case : str
    setting : dict
        Keyword arguments of its ``contest``.

    Returns
    -------
    dict or None
        ``bytes``, and ``of_result``, the same as a fraction of the result's bytes. None where the
        system has no such mark.
    """
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return None
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536",
           "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, __file__, module, case, json.dumps(setting)],
                          env=env, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {module}, {case!r} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _measure_here(module, case, setting):
    """The child's part of `extra_memory`."""
    bench = importlib.import_module(module)
    small = {key: min(value, 64) if isinstance(value, int) else value for key, value in setting.items()}
    bench.contest(**small).cases[case]()
    call = bench.contest(**setting).cases[case]
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    result = call()
    peak = status("VmHWM")
    extra = max(peak - before - result.nbytes, 0)  # a small result takes no page of its own
    print(json.dumps({"bytes": extra, "of_result": float(f"{extra / result.nbytes:.3g}")}))


def status(key):
    """An entry of ``/proc/self/status``, in bytes."""
    return 1024 * int(re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


if __name__ == "__main__":
    _measure_here(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
