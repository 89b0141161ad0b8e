"""The answers that exercises are tried on: right and wrong ones, in cells of the teaching notes.

They are not exported, so the package does not have them.
"""

import functools
import linecache
import re
from importlib import import_module

import notebooks
from build import directives, only_imports
from rfteach.exercises import exercises

ANSWERS = re.compile(r"^@\w+\.(mistake|alternative)\b", re.M)


@functools.cache
def notes(topic):
    """Return the teaching notes of a topic: the notebook that exports its specifications."""
    found, = [path for path in notebooks.chapters() for cell in notebooks.code_cells(path)
              if directives(cell.source)[0].get("default_exp") == f"specifications.{topic}"]
    return found


@functools.cache
def tried(topic):
    """Give the package's exercises on a topic the answers of its notes; return ``{name: exercise}``."""
    space = dict(vars(import_module(f"rfteach.specifications.{topic}")))
    for number, cell in enumerate(notebooks.code_cells(notes(topic))):
        found, source = directives(cell.source)
        if "export" not in found and (ANSWERS.search(source) or only_imports(source)):
            name = f"<{notes(topic).name}, code cell {number}>"
            linecache.cache[name] = len(source), None, source.splitlines(True), name  # for inspect
            exec(compile(source, name, "exec"), space)
    return exercises(topic)
