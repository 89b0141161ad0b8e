"""Intervals of Sobol' indices and Shapley effects: how often they contain the exact values.

``python benchmarks/sensitivity.py [CASE ...] [--designs 200] [--out FILE]``. A design draws n points, uniform on the
box; `sensitivity` gets them and the values there. Beside it stands the interval of sampling alone: the same surrogate fitted
to all rows, its indices by quasi-Monte Carlo, and 1.645 standard errors. For each design the file keeps a string
with a 1 for each input whose exact value the interval of 90 % contains, the mean half width over inputs whose exact
total index is at least 0.001, and the mean squared error on left-out rows over the variance. What is measured is kept
as it comes, and not measured again.
"""

from pathlib import Path

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.stats import norm

import records
from rfteach.chaos import SparsePCE
from rfteach.datasets import ishigami, ishigami_moments, sobol_g, sobol_g_moments
from rfteach.effects import sensitivity
from rfteach.sobol import sobol_indices

RESULTS = Path(__file__).resolve().parent / "results" / "sensitivity.json"
C = np.array([1, 2, 5, 10, 20, 100] + 14 * [5000.0])
SHARES = ("first", "total", "shapley")


def exact_ishigami():
    """Exact first, total and Shapley effects, (3, 3): inputs 1 and 3 share what the latter has with the former."""
    moments = ishigami_moments()
    both = moments.total[2]
    return np.array([moments.first, moments.total, moments.first + [both / 2, 0, both / 2]])


def exact_g():
    """The same of the g-function, (3, 20): a Shapley effect is the mean over t of V_i Π (1 + t V_j) / V."""
    moments = sobol_g_moments(C)
    t, weight = leggauss(30)
    V = 1 / (3 * (1 + C) ** 2)
    growth = 1 + np.outer((t + 1) / 2, V)
    shapley = weight / 2 @ (V / growth * growth.prod(1, keepdims=True)) / moments.variance
    return np.array([moments.first, moments.total, shapley])


def angles(U):
    """The function of Ishigami for points of the unit cube."""
    return ishigami((2 * U - 1) * np.pi)


CASES = {
    f"{name}, n = {n}": (f, exact, n, noise)
    for name, f, exact, noise in (
        ("Ishigami", angles, exact_ishigami, 0.0),
        ("Ishigami, noise 4 %", angles, exact_ishigami, 0.2),
        ("g in 20 inputs", lambda U: sobol_g(U, C), exact_g, 0.0),
    )
    for n in (100, 400)
}


def measure(case, seed):
    """What is kept of one design."""
    f, exact, n, noise = CASES[case]
    truth = exact()
    X = np.random.default_rng(seed).random((n, truth.shape[1]))
    y = f(X)
    if noise:
        y = y + noise * ishigami_moments().variance**0.5 * np.random.default_rng(10_000 + seed).normal(size=n)
    found = sensitivity(X, y, noise=noise > 0)
    return kept_of(found, sobol_indices(SparsePCE(bounds="unit", n_folds=None).fit(X, y), method="qmc"), truth)


def kept_of(found, alone, truth):
    """Which intervals contain the exact values, and how wide they are."""
    kept = {"left_out_error": float(f"{found.left_out_error:.3g}")}
    for name, value in zip(SHARES, truth):
        ends = getattr(found, f"{name}_interval")
        inside = (ends[:, 0] <= value) & (value <= ends[:, 1])
        kept[name] = "".join(map(str, inside.astype(int)))
        kept[f"{name}_half_width"] = float(f"{np.mean(np.ptp(ends, axis=1)[truth[1] >= 1e-3]) / 2:.3g}")
        if name != "shapley":
            gap = np.abs(getattr(alone, name) - value)
            within = gap <= norm.ppf(0.95) * getattr(alone, f"{name}_error") + 1e-12
            kept[f"{name}_sampling"] = "".join(map(str, within.astype(int)))
    return kept


def coverage(runs, key):
    """Share of the designs whose interval contains the exact value, for each input."""
    return np.mean([[int(one) for one in run[key]] for run in runs.values()], axis=0)


def summary(record):
    """For each case the least, mean and greatest coverage of the inputs that matter, as rows in Markdown."""
    lines = ["| case | designs | first | total | Shapley | sampling alone, first |", "|---|--:|---|---|---|---|"]
    for case, runs in record["cases"].items():
        matter = CASES[case][1]()[1] >= 1e-3
        shares = (coverage(runs, key)[matter] for key in (*SHARES, "first_sampling"))
        cells = (f"{s.min():.2f} to {s.max():.2f}, mean {s.mean():.3f}" for s in shares)
        lines.append(f"| {case} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    parser = records.command_line("Coverage of the intervals of sensitivity.", RESULTS, "case", CASES, "--designs", 200,
                                  "designs of each case")
    args = parser.parse_args(argv)
    record = records.opened(args.out, "python benchmarks/sensitivity.py", "cases")
    for case in args.cases or CASES:
        kept = record["cases"].setdefault(case, {})
        for seed in range(args.designs):
            if str(seed) not in kept:
                kept[str(seed)] = measure(case, seed)
                if seed % 10 == 9 or seed == args.designs - 1:
                    records.written(args.out, record, "cases", CASES)
    records.written(args.out, record, "cases", CASES)
    print(summary(record))
    return record


if __name__ == "__main__":
    main()
