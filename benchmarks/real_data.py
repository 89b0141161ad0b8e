"""What chapters show of data that the repository does not carry: ``python benchmarks/real_data.py``.

It measures on MNIST, on the propulsion plant and on the airfoil, and keeps what it finds in
``benchmarks/results/real_data.json``. The pages draw from that file, so that they are the same with
the data and without. The data lie in the folder that ``RFTEACH_DATA`` names, or MNIST is downloaded.
"""

import argparse
import json
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from harness import machine
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.bandwidth import learn_bandwidth
from rfteach.datasets import load_mnist, load_propulsion, load_regression
from rfteach.eigenpro import EigenProClassifier
from rfteach.evidence.sparse import EXPERIMENTS
from rfteach.features import RandomFourierFeatures
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.harfe_regressor import HARFERegressor

RESULTS = Path(__file__).resolve().parent / "results"


def short(values):
    """Round to four significant digits."""
    return [float(f"{value:.4g}") for value in np.ravel(values)]


def propulsion():
    """The training and the validation rows."""
    return [load_propulsion(split, return_X_y=True, download=False) for split in ("train", "validation")]


def bandwidth():
    """Chapter 4: ridge on 1000 features with the median bandwidth and with learned ones; a Gaussian process."""
    (X, y), (X_val, y_val) = propulsion()

    def ridge(width):
        features = RandomFourierFeatures("gaussian", width, 1000, form="paired", sampling="orthogonal", random_state=0)
        return RandomFeatureRidge(features).fit(X, y)

    def process():
        kernel = ConstantKernel(1.0, (1e-5, 1e8)) * RBF(np.ones(X.shape[1]), (1e-2, 1e5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # idle inputs end at their bound
            return GaussianProcessRegressor(kernel + WhiteKernel(1e-3, (1e-12, 10)), normalize_y=True).fit(X, y)

    methods = {"features, median": lambda: ridge("median"), "features, learned": lambda: ridge("learned"),
               "Gaussian process": process}
    found = {}
    for name, fit in methods.items():
        start = time.perf_counter()
        error = np.mean((fit().predict(X_val) - y_val) ** 2)
        found[name] = dict(zip(("error", "seconds"), short([error, time.perf_counter() - start])))
    return {"methods": found, "bandwidths": short(learn_bandwidth(X, y).bandwidth)}


def pursuit():
    """Chapter 7: HARFE with its bandwidth chosen, with bandwidth 1, and the rule of the public code."""
    (X, y), (X_val, y_val) = propulsion()
    errors, widths = {"auto": [], "1": []}, []
    for seed in range(3):
        for name, width in {"auto": "auto", "1": 1.0}.items():
            model = HARFERegressor(3000, 2, kernel="uniform", bandwidth=width, random_state=seed).fit(X, y)
            errors[name].append(np.mean((model.predict(X_val) - y_val) ** 2))
            if width == "auto":
                widths.append(np.median(model.bandwidth_))
                inputs = model.active_inputs_.tolist()
    rule = [EXPERIMENTS["propulsion"].run(seed, "cpu")["signed"] for seed in range(20)]
    return {"errors": {name: short(values) for name, values in errors.items()}, "public rule": short(rule),
            "bandwidths": short(widths), "active inputs": inputs}


def eigenpro():
    """Chapter 8: the first 10 000 images of MNIST and every second test image, in two spaces, two methods."""
    (X, y), (X_test, y_test) = (load_mnist(split, return_X_y=True) for split in ("train", "test"))
    X, y, X_test, y_test = X[:10_000], y[:10_000], X_test[::2], y_test[::2]
    features = RandomFourierFeatures("gaussian", 5.0, 15_000, form="paired", random_state=0)
    found = {}
    for where, space in {"RKHS": dict(bandwidth=5.0), "features": dict(feature_map=features)}.items():
        for name, k in {"EigenPro": "auto", "SGD": 0}.items():
            model = EigenProClassifier(**space, n_eigen=k, batch_size=256, max_iter=5, random_state=0,
                                       early_stopping=False, fit_intercept=False)
            history = model.fit(X, y, X_test, y_test).history_
            found[f"{name}, {where}"] = {"test error": short(history["validation_error"]),
                                         "seconds": short(history["seconds"])}
    return {"images": len(X), "runs": found}


def adaptive():
    """Chapter 10: learned active sets on the airfoil, by the heaviest waves alone and by the mixture."""
    X, y = load_regression("airfoil-self-noise", return_X_y=True, download=False)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1350], order[1350:]
    found = {}
    for selection in ("largest", "mixed"):
        model = AdaptiveFeatureRegressor(selection=selection, random_state=0).fit(X[train], y[train])
        found[selection] = short(np.mean((model.predict(X[test]) - y[test]) ** 2) / np.var(y[test]))[0]
    return {"rows": len(X), "training rows": len(train), "error": found}


def levels():
    """Chapter 7: how many values the speed of the frigate takes."""
    (_, y), _ = propulsion()
    values = np.unique(y)
    return {"rows": len(y), "levels": len(values), "smallest step": short(np.diff(values).min())[0]}


PAGES = (bandwidth, pursuit, eigenpro, adaptive, levels)


def main(argv=None):
    """Measure for all pages and keep the results."""
    parser = argparse.ArgumentParser(description="What chapters show of data that the repository does not carry.")
    parser.add_argument("--out", type=Path, default=RESULTS / "real_data.json", metavar="FILE",
                        help="benchmarks/results/real_data.json")
    args = parser.parse_args(argv)
    record = {"command": "python benchmarks/real_data.py", "date": str(date.today()), "machine": machine(), "pages": {}}
    for page in PAGES:
        print(f"{page.__name__}: ", end="", flush=True)
        start = time.perf_counter()
        record["pages"][page.__name__] = page()
        print(f"{time.perf_counter() - start:.1f} s")
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
