"""Files of results that grow: what is measured is kept as it comes, and not measured again.

A record is a dictionary with the command, the day, the machine, a line about each method, and the
measurements under one more key, by name and method and seed.
"""

import argparse
import json
from datetime import date
from pathlib import Path

from harness import machine


def command_line(description, results, kind, names, count, usual, about):
    """A parser of names of a kind, ``count`` with its usual number and what it says, and ``--out``, the file of results."""

    def known(name):
        if name not in names:
            raise argparse.ArgumentTypeError(f"unknown {kind} {name!r}; there are {'; '.join(names)}")
        return name

    parser = argparse.ArgumentParser(description=description)
    every = "; ".join(names).replace("%", "%%")
    parser.add_argument(f"{kind}s", nargs="*", type=known, metavar=kind.upper(), help=f"all if none is named: {every}")
    parser.add_argument(count, type=int, default=usual, metavar="N", help=f"{about} ({usual})")
    parser.add_argument("--out", type=Path, default=results, metavar="FILE", help=f"benchmarks/results/{results.name}")
    return parser


def opened(file, command, key, methods=()):
    """What the file holds under the key, with today's date and machine, and the first lines of docstrings."""
    kept = json.loads(file.read_text(encoding="utf-8"))[key] if file.exists() else {}
    about = {"methods": {method: methods[method].__doc__.splitlines()[0] for method in methods}} if methods else {}
    return {"command": command, "date": date.today().isoformat(), "machine": machine(), **about, key: kept}


def written(file, record, key, order):
    """The record in the file, what is under the key in this order."""
    record[key] = {name: record[key][name] for name in order if name in record[key]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measure_tables(argv, description, results, tables, methods, splits, split, measure, *, usual=None):
    """The command line of a benchmark on tables, and the record after it.

    Parameters
    ----------
    argv : list of str or None
        Names of tables, ``--methods``, ``--splits`` and ``--out``.
    description : str
        For ``--help``.
    results : pathlib.Path
        The file that is grown where ``--out`` names no other; the script has its name.
    tables : iterable of str
    methods : dict of str to callable
        With a docstring each, whose first line says what the method is.
    splits : int
        Where ``--splits`` is not given.
    split : callable of (table, seed)
        Parts of the table.
    measure : callable of (method, *parts, seed)
        What is kept of one split.
    usual : list of str or None
        Methods that run where none is named; all if None.
    """
    parser = command_line(description, results, "table", tables, "--splits", splits, "random splits")
    parser.add_argument("--methods", nargs="+", default=usual or list(methods), metavar="METHOD", choices=list(methods),
                        help=f"all if none is named: {', '.join(methods)}")
    args = parser.parse_args(argv)
    record = opened(args.out, f"python benchmarks/{results.stem}.py", "tables", methods)
    for seed in range(args.splits):
        for table in args.tables or tables:
            kept = record["tables"].setdefault(table, {})
            missing = [method for method in args.methods if str(seed) not in kept.setdefault(method, {})]
            parts = split(table, seed) if missing else ()
            for method in missing:
                kept[method][str(seed)] = measure(method, *parts, seed)
                print(table, method, seed, kept[method][str(seed)], flush=True)
            written(args.out, record, "tables", tables)
    return record
