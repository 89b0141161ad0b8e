"""What intervals cover after a choice among many candidates by the rows whose errors make them: `AutoKernelRegressor`, few rows.

``python benchmarks/interval_choice.py [CASE ...] [--draws 40] [--out FILE]``. A draw has n rows of a function of three out of
five inputs, with noise, and 1000 new rows. For each the file keeps the shares that intervals of 50 % and of 90 % hold. What is
measured is kept as it comes, and not measured again.
"""

from pathlib import Path

import numpy as np

import records
from rfteach.auto import AutoKernelRegressor

RESULTS = Path(__file__).resolve().parent / "results" / "interval_choice.json"
CASES = {f"n = {n}": n for n in (60, 100)}
LEVELS = 0.5, 0.9


def measure(n, seed):
    """By level the share of new rows that are covered."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + 1000, 5))
    y = np.sin(3 * X[:, 0] * X[:, 1]) + X[:, 2] ** 2 + 0.3 * rng.normal(size=len(X))
    model = AutoKernelRegressor().fit(X[:n], y[:n])
    ends = [model.predict_interval(X[n:], level).T for level in LEVELS]
    return {str(level): float(np.mean((low <= y[n:]) & (y[n:] <= high))) for level, (low, high) in zip(LEVELS, ends)}


def main(argv=None):
    """Measure what is not in the file yet, and print means and standard errors."""
    parser = records.command_line("Coverage after a choice.", RESULTS, "case", CASES, "--draws", 40, "draws of each case")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/interval_choice.py", "cases")
    for case in args.cases or CASES:
        kept = record["cases"].setdefault(case, {})
        for seed in range(args.draws):
            if str(seed) not in kept:
                kept[str(seed)] = measure(CASES[case], seed)
        records.written(args.out, record, "cases", CASES)
        for level in map(str, LEVELS):
            shares = np.array([run[level] for run in kept.values()])
            print(f"{case}, {level}: {shares.mean():.3f} ± {shares.std() / len(shares)**0.5:.3f}", flush=True)
    return record


if __name__ == "__main__":
    main()
