"""A benchmark with the code of an earlier commit beside today's, for ``run.py NAME --before COMMIT``."""

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PACKAGE = "rfteach_before"


def renamed(code):
    """Code that imports the earlier package in place of today's."""
    return re.sub(r"^(\s*(?:from|import)) rfteach\b", rf"\1 {PACKAGE}", code, flags=re.MULTILINE)


@cache
def package(commit):
    """Make the package as it was importable under a name of its own; one commit in a process."""
    if PACKAGE in sys.modules:
        raise ValueError("a process compares with one commit")
    archive = subprocess.run(["git", "archive", commit, "rfteach"], cwd=HERE.parent, capture_output=True)
    if archive.returncode:
        raise ValueError(f"--before {commit}: {archive.stderr.decode().strip()}")
    folder = tempfile.TemporaryDirectory(prefix=PACKAGE)  # for as long as the process runs
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder.name, filter="data")
    home = Path(folder.name) / "rfteach"
    for file in home.rglob("*.py"):
        file.write_text(renamed(file.read_text(encoding="utf-8")), encoding="utf-8")
    home.rename(home.with_name(PACKAGE))
    sys.path.insert(0, folder.name)
    return folder


def beside(contest, module, setting, commit):
    """A contest with each of our cases a second time, by the package as it was at a commit.

    ValueError where there is none, or where the benchmark takes parts of others, which would be those of today.
    """
    file = Path(sys.modules[module].__file__)
    code = file.read_text(encoding="utf-8")
    if re.search(r"^\s*(from|import) bench_", code, flags=re.MULTILINE):
        raise ValueError(f"--before: {module} takes parts of other benchmarks; run those")
    if not any(case.startswith("rfteach") for case in contest.cases):
        raise ValueError(f"--before: nothing in {contest.baseline!r} against {', '.join(contest.cases)} is named "
                         "rfteach; choose other settings with --only")
    package(commit)
    earlier = ModuleType(f"{module}_before")
    exec(compile(renamed(code), file, "exec"), vars(earlier))
    then = earlier.contest(**setting)
    ours = [case for case in then.cases if case.startswith("rfteach")]
    return replace(
        contest,
        cases={f"{commit}: {case}": then.cases[case] for case in ours} | contest.cases,
        errors={f"{commit}: {case}": then.errors[case] for case in ours if case in then.errors} | contest.errors,
        memory=False)
