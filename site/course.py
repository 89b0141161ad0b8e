"""The whole course: ``python site/course.py``.

The pages come first, from the outputs that are stored in the notebooks. Meanwhile and afterwards every
chapter is executed with its checks, and published numbers are measured again. What has been done and has
not changed is not done again.
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import jobs
import notebooks
from build import SiteError, settings

ROOT = notebooks.ROOT
SITE, REPORT = ROOT / "_build/site", ROOT / "_build/reproductions/report.txt"
PAGES, NUMBERS = "the pages", "published numbers"
SECONDS = {PAGES: 40, NUMBERS: 90}  # as long as they take beside other jobs


def digest(*patterns):
    """Return a hash of the files of the project that match."""
    found = hashlib.sha256(sys.version.encode())
    for file in sorted(file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()):
        found.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return found.hexdigest()


def unless_done(made, key, step):
    """Take a step that makes the file `made`, and keep `key` beside it; do nothing where that has been done."""
    mark = made.with_name(".key")
    if not (made.exists() and mark.exists() and mark.read_text() == key):
        mark.unlink(missing_ok=True)
        step()
        mark.write_text(key)


def pages():
    """Build the pages from the stored outputs."""
    lib = settings(ROOT)["lib_path"]
    key = digest("nbs/**/*.ipynb", f"{lib}/**/*.py", "site/*.py", "site/static/*", "settings.ini", "constraints.txt",
                 "_quarto.yml")
    # in a process of its own, as Sphinx changes the one that it runs in
    unless_done(SITE / "index.html", key, lambda: command(sys.executable, ROOT / "site/build.py"))


def command(*words, fine=(0,)):
    """Run a command with one thread; return its output, or raise what it says."""
    done = subprocess.run([*map(str, words)], cwd=ROOT, env={**os.environ, **jobs.ONE_THREAD}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode not in fine:
        raise SiteError(done.stdout)
    return done.stdout


def numbers():
    """Measure published numbers, the fast tier; keep what the command prints."""
    def measure():
        text = command(Path(sys.executable).parent / "rfteach", "reproduce", "--out", REPORT.parent, fine=(0, 1))
        if "in all: " not in text:  # status 1 is that of a value that is worse, and of an error that nobody expects
            raise SiteError(text)
        REPORT.write_text(text, encoding="utf-8")

    unless_done(REPORT, digest(f"{settings(ROOT)['lib_path']}/**/*.py", "constraints.txt"), measure)


def said(name, result):
    """Return the line about a job that is done."""
    if name in (PAGES, NUMBERS) and isinstance(result, Exception):
        return f"{name}: stopped\n{result}"
    if name == PAGES:
        return f"The pages are ready, more is to come. Open in a browser:\n    {(SITE / 'index.html').as_uri()}"
    return notebooks.progress_line(name, result) if name != NUMBERS else name


def main():
    """Do all, say what came out; return the exit status."""
    start = time.monotonic()
    chapters, expected = notebooks.as_jobs(notebooks.stale)
    todo = {PAGES: pages, NUMBERS: numbers, **chapters}
    results = jobs.run(todo, {**expected, **SECONDS}, said, first=PAGES)
    failed = {name: error for name, error in results.items() if isinstance(error, Exception)}
    print()
    for name, error in failed.items():
        print(f"{name}: {error}\n", file=sys.stderr)
    cells = sum(len(notebooks.code_cells(notebooks.NBS / name)) for name in chapters if name not in failed)
    print(f"{len(chapters) - len(failed.keys() & chapters)} of {len(chapters)} chapters hold, with their checks: "
          f"{cells} cells executed now or before.")
    if other := {name: found for name, found in results.items() if name in chapters and found and name not in failed}:
        print("This machine gives other outputs than the stored ones in "
              + ", ".join(f"{name} ({len(found)} cells)" for name, found in other.items()) + "; make test says which.")
    if NUMBERS not in failed:
        print(f"Published numbers, {REPORT.read_text(encoding='utf-8').partition('in all: ')[2].partition(chr(10))[0]};"
              f"\n    {(REPORT.parent / 'report.md').as_uri()}")
    if PAGES not in failed:
        print(f"The course, ready in {jobs.in_words(time.monotonic() - start)}:\n    {(SITE / 'index.html').as_uri()}\n"
              "or work in the notebooks: make lab")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
