"""Let kept results of the full run count for code that was moved or tidied, after measuring that it gives them.

``python benchmarks/restamp.py [--long] [--tolerance 1e-6] [--results FILE]`` looks for experiments whose
fingerprint is not the one in FILE any more. It measures their repetitions of the fast tier again and compares
each figure with the kept one. Where all of an experiment agree to rounding, its records get the new fingerprint,
and a note of the day and of how many repetitions were measured. Where one does not, the change has moved a number,
or searches have amplified the rounding of another processor: the records stay as they are, and the experiment is
measured in full by ``rfteach reproduce``.

Experiments outside the fast tier need data or an hour. By ``--long`` their first repetition is measured, too. Without
it they are carried along once every experiment of the fast tier is up to date, and their note says that none of
their repetitions was measured.
"""

import argparse
import json
import math
import sys
from datetime import date
from pathlib import Path

from rfteach.evidence.fingerprint import fingerprint
from rfteach.evidence.run import EXPERIMENTS, load_results, measure, usable

RESULTS = Path(__file__).resolve().parent / "results/reproductions/results.jsonl"


def disagreements(kept, measured, tolerance):
    """What two repetitions differ in beyond rounding, one line for each figure; seconds are not compared."""
    found = [f"{key}: only in one of them" for key in sorted(kept.keys() ^ measured.keys())]
    for key in sorted(kept.keys() & measured.keys()):
        if "seconds" not in key and not math.isclose(kept[key], measured[key], rel_tol=tolerance, abs_tol=1e-12):
            found.append(f"{key}: kept {kept[key]:.12g}, now {measured[key]:.12g}")
    return found


def outdated(records):
    """For each experiment with records of another fingerprint the kept figures, by seed."""
    found = {}
    for record in records:
        if usable(record, "cpu", any_code=True) and not usable(record, "cpu"):
            found.setdefault(record["experiment"], {})[record["seed"]] = record["values"]
    return found


def compare(name, kept, seeds, tolerance):
    """Measure repetitions again; how many were measured, and what differs."""
    found, number = [], 0
    for seed in sorted(set(kept) & set(range(seeds))):
        found += [f"{name}, seed {seed}, {line}" for line in
                  disagreements(kept[seed], measure(name, seed)["values"], tolerance)]
        number += 1
    return number, found


def stamped(record, counted):
    """A record with today's fingerprint and the note, if it is outdated and its experiment is in `counted`."""
    name = record["experiment"]
    if name not in counted or not usable(record, "cpu", any_code=True) or usable(record, "cpu"):
        return record
    note = {"date": date.today().isoformat(), "measured": counted[name]}
    return record | {"code": fingerprint(EXPERIMENTS[name].run), "restamped": note}


def main(argv=None):
    """Measure, compare, and write; return the exit status, 1 where a figure differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="also one repetition of what the fast tier leaves out")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="relative, of each figure (1e-6)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="the kept results")
    args = parser.parse_args(argv)
    records = load_results(args.results)
    counted, faults, unmeasured = {}, [], []
    for name, kept in outdated(records).items():
        number, found = compare(name, kept, EXPERIMENTS[name].fast or int(args.long), args.tolerance)
        print(f"{name:38} {number} measured, {len(found)} figures differ", flush=True)
        faults += found
        if number and not found:
            counted[name] = number
        elif not number:
            unmeasured.append(name)
    current = {record["experiment"] for record in records if usable(record, "cpu")} | counted.keys()
    waits = [name for name, experiment in EXPERIMENTS.items() if experiment.fast and name not in current]
    counted |= {name: 0 for name in unmeasured if not waits}
    part = args.results.with_suffix(".part")
    part.write_text("".join(json.dumps(stamped(record, counted)) + "\n" for record in records), encoding="utf-8")
    part.replace(args.results)
    print(f"{len(counted)} experiments have their new fingerprint")
    if waits:
        print("\n".join([*faults, "To be measured in full before the rest can follow: " + ", ".join(waits)]),
              file=sys.stderr)
    return int(bool(waits))


if __name__ == "__main__":
    sys.exit(main())
