"""Break each numbered equation, and see that the page's own check refuses it: ``python tests/mutations.py [page ...]``.

``tests/equations/<page>.toml`` has a table for each equation of a chapter's page, one of::

    ["1.1"]
    definition = "why nothing in it could be wrong"

    ["1.6"]
    check = "0e1f2a3b"          # id of the cell that checks it
    statistical = true          # where chance decides: the cell calls `least_error`, which says what it catches
    wrong = [
        { form = "σ for 1/σ", old = "Z / sigma", new = "Z * sigma" },
        { form = "…", old = "…", new = "…", edit = "4c5d6e7f" },  # the edit is in an earlier cell
    ]

``old`` stands once in the source of the cell. A page runs once, up to the last cell that is needed; before each
cell that is edited the process forks, and the copy goes on with the wrong form until the checking cell has run.
The wrong form is caught where an assertion fails there, or in a cell between. A wrong form that stops with another
error, such as a wrong shape, is no test of the check, and is reported.

The outcome is kept in ``benchmarks/results/equations/report.json``, which the page "What was checked" shows. Pages whose code up
to the last check, numbered formulas, and table have not changed are not run again.
"""

import hashlib
import json
import os
import re
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run

ROOT = Path(__file__).resolve().parent.parent
TABLES, REPORT = ROOT / "tests/equations", ROOT / "benchmarks/results/equations/report.json"
LIMIT = 120  # seconds for a wrong form


def cells_of(page):
    """The cells of a page, ``{id: cell}``, each with its source as one string."""
    cells = json.loads((ROOT / f"nbs/{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: {**cell, "source": "".join(cell["source"])} for cell in cells}


def formulas(page):
    """The numbered formulas of a page, between their dollars."""
    texts = [cell["source"] for cell in cells_of(page).values() if cell["cell_type"] == "markdown"]
    return [formula for text in texts for formula in text.split("$$")[1::2] if r"\tag" in formula]


def tags(page):
    """The numbers of the equations of a page, in the order of the page."""
    text = "\n".join(cell["source"] for cell in cells_of(page).values() if cell["cell_type"] == "markdown")
    return re.findall(r"\\tag\{([^}]*)\}", text)


def pages():
    """The pages of chapters 1 to 14, those before the evidence, that have numbered equations."""
    names = sorted(path.stem for path in (ROOT / "nbs").glob("*.ipynb"))
    return [name for name in names if re.match(r"(0[1-9]|1[0-4])", name) and tags(name)]


def table(page):
    """The table of a page: for each equation its check and wrong forms, or why it has none."""
    path = TABLES / f"{page}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def missing(page):
    """The equations of a page that its table says nothing about."""
    return [tag for tag in tags(page) if tag not in table(page)]


def faults(page):
    """What is wrong with the table of a page, as a list of sentences."""
    cells, order = cells_of(page), list(cells_of(page))
    found = [f"({tag}) is not a number such as (3.2)" for tag in tags(page) if not re.fullmatch(r"\d+\.\d+", tag)]
    found += [f"({tag}) is not between $$ and $$" for tag in tags(page) if rf"\tag{{{tag}}}" not in "".join(formulas(page))]
    for tag, row in table(page).items():
        if tag not in tags(page):
            found.append(f"({tag}) is not on the page")
        if "definition" in row:
            found += [f"({tag}) is a definition and has {key}" for key in row.keys() - {"definition"}]
            continue
        if row.get("check") not in cells:
            found.append(f"({tag}): there is no cell {row.get('check')}")
            continue
        if not row.get("wrong"):
            found.append(f"({tag}) has no wrong form")
        for wrong in row.get("wrong", []):
            edit = wrong.get("edit", row["check"])
            if edit not in cells or order.index(edit) > order.index(row["check"]):
                found.append(f"({tag}), {wrong['form']}: no cell {edit} before the check")
            elif (n := cells[edit]["source"].count(wrong["old"])) != 1:
                found.append(f"({tag}), {wrong['form']}: {wrong['old']!r} stands {n} times in cell {edit}")
    return found


def state(page):
    """A digest of what the outcome depends on: the code of the page up to its last check, its numbered formulas, and its table."""
    cells, rows = cells_of(page), table(page)
    last = max((list(cells).index(row["check"]) for row in rows.values() if row.get("check") in cells), default=-1)
    sources = [cell["source"] for cell in list(cells.values())[: last + 1] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps([sources, formulas(page), rows], sort_keys=True).encode()).hexdigest()[:16]


def runnable(cell):
    """Whether a cell is code that can run here: no installation, no export, no answer to an exercise."""
    return cell["cell_type"] == "code" and not re.search(r"nbdev_export\(\)|^! ", cell["source"], re.M)


class Page:
    """A page that runs in this process, as its kernel would."""

    def __init__(self, name):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        import torch
        from IPython.core.interactiveshell import InteractiveShell

        torch.set_num_threads(1)
        os.chdir(ROOT / "nbs")
        self.plt, self.shell = plt, InteractiveShell.instance()
        self.cells, self.order = cells_of(name), list(cells_of(name))
        self.powers = []

    def step(self, key, source=None):
        """Run a cell; the error it ends with, or None."""
        result = self.shell.run_cell(source if source is not None else self.cells[key]["source"], silent=True)
        self.plt.close("all")
        space = self.shell.user_ns
        if "least_error" in space and not hasattr(space["least_error"], "watched"):
            space["least_error"] = self._watch(space["least_error"])
        return result.error_before_exec or result.error_in_exec

    def _watch(self, least_error):
        """`least_error`, which notes what it has said."""
        def watched(*args, **settings):
            said = least_error(*args, **settings)
            self.powers.append(float(said))
            return said

        watched.watched = True
        return watched

    def broken(self, edit, wrong, check):
        """What becomes of a wrong form: "caught", "passed", or the error that it stops with."""
        reader, writer = os.pipe()
        if child := os.fork():
            os.close(writer)
            with os.fdopen(reader, encoding="utf-8") as pipe:
                said = pipe.read()
            os.waitpid(child, 0)
            return said or "stopped without a word, or took too long"
        import signal

        signal.alarm(LIMIT)  # the child ends without a word
        said = "passed"
        for key in self.order[self.order.index(edit):self.order.index(check) + 1]:
            if runnable(self.cells[key]):
                source = self.cells[key]["source"]
                error = self.step(key, source.replace(wrong["old"], wrong["new"]) if key == edit else source)
                if error:
                    refused = isinstance(error, AssertionError) or type(error).__name__ == "GradcheckError"
                    said = "caught" if refused else f"{type(error).__name__}: {error}"
                    break
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            pipe.write(said)
        os._exit(0)


def judge(name):
    """Run a page with the wrong forms of its table; the record that the report keeps."""
    rows, page = table(name), Page(name)
    checks = {tag: row for tag, row in rows.items() if "check" in row}
    jobs = [(wrong.get("edit", row["check"]), tag, wrong) for tag, row in checks.items() for wrong in row["wrong"]]
    needed = {edit for edit, _, _ in jobs} | {row["check"] for row in checks.values()}
    outcome = {tag: {"wrong": {}} for tag in checks}
    for key in page.order:
        if not needed:
            break
        for edit, tag, wrong in jobs:
            if edit == key:
                outcome[tag]["wrong"][wrong["form"]] = page.broken(edit, wrong, checks[tag]["check"])
        page.powers.clear()
        if runnable(page.cells[key]) and (error := page.step(key)):
            raise RuntimeError(f"{name}, cell {key} as it stands: {type(error).__name__}: {error}")
        for tag, row in checks.items():
            if row["check"] == key and row.get("statistical"):
                outcome[tag]["catches"] = float(f"{min(page.powers):.2g}") if page.powers else None
        needed.discard(key)
    definitions = {tag: row["definition"] for tag, row in rows.items() if "definition" in row}
    return {"state": state(name), "definitions": definitions, "checks": outcome}


def report():
    """What is kept of the last runs, ``{page: record}``."""
    return json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}


def complaints(record):
    """What a record of a page has that should not be there, as a list of sentences."""
    lines = [f"({tag}), {form}: {said}" for tag, found in record["checks"].items()
             for form, said in found["wrong"].items() if said != "caught"]
    return lines + [f"({tag}) is statistical, and its cell does not call least_error"
                    for tag, found in record["checks"].items() if "catches" in found and found["catches"] is None]


def line(page, record):
    """One line about a page."""
    forms = [said for found in record["checks"].values() for said in found["wrong"].values()]
    equations = len(record["definitions"]) + len(record["checks"])
    return (f"{page:20}{equations:3} equations, {len(record['definitions'])} definitions, "
            f"{len(record['checks'])} checked, {forms.count('caught')} of {len(forms)} wrong forms caught")


def main(chosen):
    """Bring the report up to date for all pages, or make it again for the chosen ones."""
    open_ = {page: found for page in chosen or pages() if (found := missing(page))}
    bad = {page: found for page in chosen or pages() if (found := faults(page))}
    for page, found in open_.items():
        print(f"{page}: ({'), ('.join(found)}) has no row in tests/equations/{page}.toml; the head of this file says how to write it")
    for page, found in bad.items():
        print(f"{page}: {'; '.join(found)}")
    kept = report()
    due = [page for page in chosen or pages() if page not in bad
           and (chosen or kept.get(page, {}).get("state") != state(page))]

    def outcome(page):
        env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(ROOT)}
        start = time.monotonic()
        done = run([sys.executable, __file__, "--one", page], env=env, capture_output=True, text=True)
        if done.returncode:
            print(f"{page}: {done.stderr.strip() or done.stdout.strip()}")
            return page, None
        record = json.loads(done.stdout.splitlines()[-1])
        print(line(page, record) + f" ({time.monotonic() - start:.0f} s)", *complaints(record), sep="\n    ", flush=True)
        return page, record

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1) as pool:
        new = {page: record for page, record in pool.map(outcome, due) if record}
    order = pages()
    kept = {page: record for page, record in sorted({**report(), **new}.items()) if page in order}
    REPORT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    failed = open_ or bad or len(new) < len(due) or any(complaints(record) for record in kept.values())
    return 1 if failed or [page for page in order if kept.get(page, {}).get("state") != state(page)] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        out, sys.stdout = sys.stdout, open(os.devnull, "w")
        print(json.dumps(judge(sys.argv[2]), ensure_ascii=False), file=out)
    else:
        sys.exit(main(sys.argv[1:]))
