"""What the chapter on recursive feature machines shows: ``python benchmarks/rfm.py [angles] [tables] [xrfm]``.

``angles`` measures the largest principal angle between directions that are known and those that are found, beside
sliced inverse regression and gradient PCA; ``tables`` the errors on eight of the tables in ``RFTEACH_DATA``, without
learning, with the metric that was chosen, and always with five rounds; ``xrfm`` the metric and the time of the package
xrfm 0.4.5 on the same rows (``pip install xrfm==0.4.5``; left out where it is not installed). All of it is kept in
``benchmarks/results/rfm.json``, from which the page draws.
"""

import argparse
import json
import time
from collections import Counter
from datetime import date
from pathlib import Path

import numpy as np
import torch
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from harness import machine
from rfteach.agop import RFMRegressor, rfm_rounds
from rfteach.datasets import load_regression
from rfteach.kernels import Laplacian
from rfteach.pca import GradientPCA

RESULTS = Path(__file__).resolve().parent / "results" / "rfm.json"
TABLES = ["yacht", "energy", "concrete", "airfoil-self-noise", "wine-quality-red", "kin8nm", "power-plant",
          "naval-propulsion-plant", "protein-tertiary-structure"]


def short(value):
    """Four significant digits."""
    return float(f"{value:.4g}")


def sliced_inverse_regression(X, y, rank, n_slices=10):
    """Leading directions (rank, d) in which the means of whitened inputs differ between slices of y."""
    values, V = np.linalg.eigh(np.cov(X.T))
    whiten = V / np.sqrt(values) @ V.T
    Z = (X - X.mean(0)) @ whiten
    parts = np.array_split(np.argsort(y, kind="stable"), n_slices)
    means = np.array([Z[part].mean(0) * np.sqrt(len(part) / len(y)) for part in parts])
    return np.linalg.svd(means, full_matrices=False)[2][:rank] @ whiten


def projected(rank, n, seed, d=20):
    """Rows, targets with noise of a tenth, and the directions (rank, d) that they depend on."""
    P, rng = ortho_group.rvs(d, random_state=seed)[:rank], np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Z = X @ P.T
    y = np.sin(1.5 * Z[:, 0])
    if rank > 1:
        y += Z[:, 1] ** 2 / 2
    if rank > 2:
        y += Z[:, 0] * Z[:, 2]
    return X, y + 0.1 * rng.normal(size=n), P


def angles(seeds=5, sizes=(100, 200, 400, 800)):
    """Largest principal angles in degrees: mean and standard error by rank, rows and method."""
    found = {"seeds": seeds, "rows": []}
    for rank in (1, 2, 3):
        for n in sizes:
            degrees = {"RFM": [], "sliced inverse regression": [], "gradient PCA": []}
            for seed in range(seeds):
                X, y, P = projected(rank, n, seed)
                spans = {"RFM": RFMRegressor(metric="full").fit(X, y).directions_[:rank],
                         "sliced inverse regression": sliced_inverse_regression(X, y, rank),
                         "gradient PCA": GradientPCA(rank).fit(X).components_}
                for name, B in spans.items():
                    degrees[name].append(np.degrees(subspace_angles(P.T, B.T)[0]))
            row = {name: [short(np.mean(v)), short(np.std(v, ddof=1) / seeds**0.5)] for name, v in degrees.items()}
            found["rows"].append({"rank": rank, "n": n, "degrees": row})
            print(rank, n, row, flush=True)
    return found


def tables(n=600, draws=3, always=5):
    """Errors over the variance on rows that were not drawn, means over draws, and how often what was chosen."""
    found = {}
    for table in TABLES:
        X, y = load_regression(table, return_X_y=True, download=False)
        errors, chosen = [], Counter()
        for seed in range(draws):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = np.split(order, [min(n, int(0.8 * len(y)))])
            test = test[:2000]
            models = [RFMRegressor(n_rounds=0), RFMRegressor(), RFMRegressor(metric="full", n_rounds=always)]
            for model in models:
                model.fit(X[train], y[train])
            errors.append([np.mean((m.predict(X[test]) - y[test]) ** 2) / y[train].var() for m in models])
            errors[-1].append(models[1].error_ / y[train].var())
            chosen[models[1].learned_] += 1
        start, error, five, said = map(short, np.mean(errors, 0))
        found[table] = {"start": start, "error": error, "always": five, "said": said, "chosen": dict(chosen)}
        print(table, found[table], flush=True)
    return found


def xrfm(settings=((303, 5), (999, 10), (2003, 20), (2003, 100)), lam=1e-2, n_rounds=3, repeats=7):
    """Three rounds by both: how far the metrics are apart, relative to the largest entry, and median seconds
    of the processor, which other work on the machine does not lengthen."""
    from xrfm.rfm_src import RFM

    rows = []
    for n, d in settings:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, d))
        X = (X - X.mean(0)) / X.std(0)
        y = np.sin(X[:, :3].sum(1))
        tensors = torch.from_numpy(X), torch.from_numpy(y)[:, None]
        few = tensors[0][:10], tensors[1][:10]

        def ours():
            *_, last = rfm_rounds(*tensors, torch.ones(n).double(), Laplacian(1.0), n_rounds, alpha=lam,
                                  shrinkage=0.0, fit_intercept=False, left_out=False)
            return last.L.T @ last.L

        def theirs():
            model = RFM("l2", n_rounds, bandwidth=1.0, bandwidth_mode="adaptive", device="cpu", verbose=False)
            model.fit(tensors, few, iters=n_rounds, reg=lam, return_best_params=False, early_stop_rfm=False)
            return model.M

        A, B = (M / M.max() for M in (ours(), theirs()))
        seconds = []
        for _ in range(repeats):
            seconds.append([])
            for fit in (ours, theirs):
                start = time.process_time()
                fit()
                seconds[-1].append(time.process_time() - start)
        ratio = np.median([a / b for a, b in seconds])
        mine, other = np.median(seconds, 0)
        rows.append({"n": n, "d": d, "apart": short((A - B).abs().max()), "ours": short(mine), "theirs": short(other),
                     "ratio": short(ratio), "threads": torch.get_num_threads()})
        print(rows[-1], flush=True)
    return rows


def main(argv=None):
    parser = argparse.ArgumentParser(description="What the chapter on recursive feature machines shows.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="angles, tables, xrfm; all if none is named")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help="benchmarks/results/rfm.json")
    args = parser.parse_args(argv)
    measure = {"angles": angles, "tables": tables, "xrfm": xrfm}
    for part in args.parts:
        if part not in measure:
            parser.error(f"unknown part {part!r}; there are {', '.join(measure)}")
    record = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    record |= {"command": "python benchmarks/rfm.py", "date": date.today().isoformat(), "machine": machine()}
    for part in args.parts or measure:
        try:
            record[part] = measure[part]()
        except ModuleNotFoundError as error:
            print(f"{part} is left out: {error}")
            continue
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
