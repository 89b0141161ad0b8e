"""Run benchmarks: ``python benchmarks/run.py [NAME ...] [--only TEXT] [--before COMMIT] [--quick] [--out FOLDER]``.

Each row is printed when it has been measured. What has been measured when the command is stopped is kept
in ``_build/bench``, and the same command, with the same code on the same machine, goes on from there.
"""

import argparse
import hashlib
import importlib
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
from tqdm import tqdm

from before import beside
from harness import compare, finished, limits, machine
from memory import extra_memory

HERE = Path(__file__).resolve().parent
NAMES = sorted(file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py"))


def label(setting):
    """A setting in words, such as ``n=5000 d=100 float32``."""
    return " ".join(value if isinstance(value, str) else f"{key}={value}" for key, value in setting.items())


def run(name, *, quick=False, only="", before=None, repeats=None, patience=4, settle=0.15, memory=True, part=None):
    """Run one benchmark.

    Parameters
    ----------
    name : str
        The module is ``bench_NAME``.
    quick : bool
        Tiny sizes and few rounds, to see that it works.
    only : str
        Run the settings whose label contains this.
    before : str or None
        A commit whose code runs in the same rounds; no memory is measured then.
    repeats : int or None
        Rounds; None means 15, or 3 when quick.
    patience, settle
        As in `harness.compare`; 1 and 0 when quick.
    memory : bool
        Measure memory, too; when quick, that of one case of the first setting.
    part : Path or None
        Where to keep the record after each setting, and to print its rows and the time that is left.
        Settings that are there already are not measured again.

    Returns
    -------
    dict
        What is written to the result file: ``name``, ``title``, ``command``, ``date``, ``machine``,
        ``limits`` by product and dtype, and ``rows``: one for each setting and case, with
        ``seconds``, ``speedup``, ``of_limit``, ``error``, ``extra_memory`` and the ``command`` that
        makes the row.
    """
    module = f"bench_{name}"
    bench = importlib.import_module(module)
    repeats = repeats or (3 if quick else 15)
    options = {"patience": 1, "settle": 0} if quick else {"patience": patience, "settle": settle}
    command = f"python benchmarks/run.py {name}" + " --quick" * quick + (f" --before {before}" if before else "")
    record = {"name": name, "title": bench.TITLE, "command": command,
              "date": date.today().isoformat(), "machine": machine(), "limits": {}, "rows": []}
    if part and part.exists():
        record = json.loads(part.read_text(encoding="utf-8"))
    settings = [setting for setting in bench.settings(quick) if only in label(setting)]
    known = {row["setting"] for row in record["rows"]}
    if part and settings:
        print("\n".join(heading(record) + [line(row) for row in record["rows"]]), flush=True)
    left = [setting for setting in settings if label(setting) not in known]
    for setting in tqdm(left, desc=name, unit="setting", disable=None if part else True, dynamic_ncols=True):
        contest = bench.contest(**setting)
        contest = beside(contest, module, setting, before) if before else contest
        dtype = setting.get("dtype", "float64")
        product = f"{'x'.join(map(str, contest.gemm))} {dtype}"
        if product not in record["limits"]:
            record["limits"][product] = limits(
                contest.gemm, dtype, place=contest.place, repeats=min(repeats, 5), **options)
        cases = {case: finished(call, contest.place) for case, call in contest.cases.items()}
        errors = {case: float(f"{error(cases[case]()):.2g}") for case, error in contest.errors.items()}
        rows = compare(cases, repeats=repeats, baseline=contest.baseline, limit=contest.limit,
                       **options)
        measured = [case for case in contest.cases if case not in contest.limit + contest.parts]
        measured = measured if memory and contest.memory else []
        if quick:
            measured, memory = [case for case in measured if case != contest.baseline], False
        for case, row in rows.items():
            record["rows"].append({
                "setting": label(setting), "case": case, "baseline": contest.baseline, **row,
                "error": errors.get(case),
                "extra_memory": extra_memory(module, case, setting) if case in measured else None,
                "limit_is": contest.limit_is, "command": f'{command} --only "{label(setting)}"'})
            if part:
                tqdm.write(line(record["rows"][-1]))
        if part:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.with_suffix(".new").write_text(json.dumps(record), encoding="utf-8")
            part.with_suffix(".new").replace(part)
    return record


def extra(memory):
    """Extra memory as a part of the result, or in MiB where the result is small."""
    if memory is None:
        return ""
    return f"{memory['of_result']:.1%}" if memory["of_result"] < 1 else f"{memory['bytes'] / 2**20:.0f} MiB"


def heading(record):
    """Return the lines above the rows of a record, as Markdown."""
    return [f"## {record['title']}", "",
            "| setting | case | milliseconds | speed-up | of the limit | largest error | extra memory |",
            "|---|---|--:|--:|--:|--:|--:|"]


def line(row):
    """Return a row as a line of the table."""
    def spread(value, digits):
        median, q1, q3 = (format(value[key], digits) for key in ("median", "q1", "q3"))
        return f"{median} ({q1}–{q3})"

    seconds = {key: 1000 * value for key, value in row["seconds"].items()}
    error = "" if row["error"] is None else f"{row['error']:.1e}"
    return "| " + " | ".join([
        row["setting"], row["case"], spread(seconds, ".4g"), spread(row["speedup"], ".2f"),
        spread(row["of_limit"], ".2f") if "of_limit" in row else "", error, extra(row["extra_memory"])]) + " |"


def footing(record):
    """Return the lines below the rows: what the columns are measured against."""
    peers = ", ".join(dict.fromkeys(row["baseline"] for row in record["rows"]))
    lines = ["", f"Medians (quartiles) over rounds; speed-up over {peers} and part of the limit taken "
             "within a round; extra memory as a part of the result.", ""]
    for limit in dict.fromkeys(row["limit_is"] for row in record["rows"] if row["limit_is"]):
        lines.append(f"- The limit: {limit}.")
    for product, rates in record["limits"].items():
        units = {"gemm": "GFLOP/s", "copy": "GB/s", "cos": "G/s", "exp": "G/s"}
        lines.append(f"- {product}: " + ", ".join(
            f"{job} {found['rate']:.3g} {units[job]} ({found['by']})" for job, found in rates.items()) + ".")
    about, noise = record["machine"], max(float(np.median(row["noise"])) for row in record["rows"])
    card = f"{about['card']}; " if "card" in about else ""
    lines.append(f"- {card}{about['cpu']}, {about['cores']} cores, {about['torch_threads']} threads, of which others "
                 f"kept {noise:.2f} busy; torch {about['torch']}, NumPy {about['numpy']}, "
                 f"scikit-learn {about['scikit-learn']}; {record['date']}; `{record['command']}`.")
    return lines


def main(argv=None):
    parser = argparse.ArgumentParser(description="Time the library against its peers and the machine's limit.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is named: {', '.join(NAMES)}")
    parser.add_argument("--only", default="", metavar="TEXT", help="only settings whose label contains TEXT")
    parser.add_argument("--before", metavar="COMMIT", help="run the code of this commit, too, and store nothing")
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (15)")
    parser.add_argument("--patience", type=int, default=4, metavar="N",
                        help="at most N times as many rounds, until enough were undisturbed (4)")
    parser.add_argument("--settle", type=float, default=0.15, metavar="S",
                        help="seconds for which a case runs uncounted before each run; 0 for cases of minutes (0.15)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; results go to _build/bench")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for the result files (benchmarks/results)")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in NAMES:
            parser.error(f"unknown benchmark {name!r}; there are {', '.join(NAMES)}")
    if args.before:
        found = subprocess.run(["git", "rev-parse", "--short", args.before], cwd=HERE.parent, capture_output=True, text=True)
        if found.returncode:
            parser.error(f"--before {args.before}: {found.stderr.strip()}")
        args.before = found.stdout.strip()
    built = HERE.parent / "_build/bench"
    out = args.out or (built if args.quick else HERE / "results")
    code = [file.read_text(encoding="utf-8") for folder in ("rfteach", "benchmarks")
            for file in sorted((HERE.parent / folder).glob("*.py"))]
    what = json.dumps([sys.argv[1:] if argv is None else argv, args.before, machine(), code])
    how = hashlib.sha256(what.encode()).hexdigest()[:12]
    parts = {name: built / f"{how}.{name}.part" for name in args.names or NAMES}
    for name, part in parts.items():
        try:
            record = run(name, quick=args.quick, only=args.only, before=args.before, repeats=args.repeats,
                         patience=args.patience, settle=args.settle, part=part)
        except KeyboardInterrupt:
            sys.exit(f"\nstopped; what has been measured is in {built}, and the same command goes on from there")
        if not record["rows"]:
            print(f"{name}: no setting contains {args.only!r}" if args.only else f"{name}: nothing that this machine can do")
            continue
        print("\n".join(footing(record)) + "\n", flush=True)
        if not (args.only or args.before):  # a part or a comparison must not replace the whole
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for part in parts.values():
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
