"""Figures of the structure, a report and no gate: ``python site/house.py [other checkout]``.

Code lines are those without docstrings, comments and blank lines; a function counts with its signature.
Prose is the Markdown of notebooks, formulas and tables included, wrapped at 90 characters. Specifications,
their notebooks and what nbdev generates do not count. With another checkout both stand side by side,
this one first.
"""

import ast
import io
import json
import re
import sys
import textwrap
import tokenize
from pathlib import Path

from build import ROOT, pages

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def counted(text):
    """Return the tree of `text`, the numbers of its code lines, and of those of its docstrings."""
    tree, code, docs = ast.parse(text), set(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTION)) and ast.get_docstring(node, clean=False) is not None:
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return tree, code - docs, docs


def functions(tree, code):
    """Return ``[(code lines, name), ...]`` of the functions, those inside of others too."""
    return [(sum(node.lineno <= line <= node.end_lineno for line in code), node.name)
            for node in ast.walk(tree) if isinstance(node, FUNCTION)]


def classes(tree):
    """Return ``[(lines, name), ...]`` of the classes."""
    return [(node.end_lineno - node.lineno + 1, node.name) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def imported(tree, name):
    """Return ``{(module, name)}`` that the module `name` takes from others of the package."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.split(".")[0] == "rfteach"):
            folder = name.split(".")[:-node.level] if node.level else []
            module = ".".join([*folder, (node.module or "").removeprefix("rfteach").strip(".")]).strip(".")
            found |= {(module or alias.name, alias.name) for alias in node.names}
    return found


def foreign(tree):
    """Return the private attributes that a module uses and does not define, of other things than self and cls."""
    own = {node.name for node in ast.walk(tree) if hasattr(node, "name")}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
            and re.match("_[^_]", node.attr) and node.attr not in own
            and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))]


def circles(needs):
    """Return the groups of modules of which each needs, directly or not, every other."""
    def reach(start):
        found, todo = set(), [start]
        while todo:
            new = needs.get(todo.pop(), set()) - found
            found, todo = found | new, todo + list(new)
        return found

    reached = {name: reach(name) for name in needs}
    groups = {tuple(sorted(b for b in needs if b in reached[a] and a in reached[b])) for a in needs}
    return sorted(" ↔ ".join(group) for group in groups if group)


def notebook(file):
    """Return the lines of prose and of code in a notebook, and ``(lines, first words)`` of its export cells."""
    prose = code = 0
    cells = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            prose += sum(len(textwrap.wrap(line, 90)) for line in source.split("\n"))
            continue
        code += len(counted(re.sub(r"^[!%].*", "", source, flags=re.M))[1])
        if re.match(r"#\| exports?$", source, re.M):
            words = re.search(r"^(?:class|def) (\w+)|\Z", source, re.M)[1] or ""
            cells.append((source.strip().count("\n"), f"{file.stem} {words}"))  # without the directive
    return prose, code, cells


def figures(root):
    """Return the figures of a checkout, ``{what: text}``."""
    texts = {file.relative_to(root / "rfteach").with_suffix("").as_posix().replace("/", "."): file.read_text("utf-8")
             for file in sorted((root / "rfteach").rglob("*.py"))
             if file.name != "_modidx.py" and file.parent.name != "specifications"}
    rows, needs, private, used, lengths, kinds, total = {}, {}, [], [], [], [], [0, 0, 0]
    for name, text in texts.items():
        tree, code, docs = counted(text)
        counts = [len(text.splitlines()), len(code), len(docs)]
        total = [a + b for a, b in zip(total, counts)]
        rows[name] = "{:6} lines {:5} code".format(*counts)
        taken = imported(tree, name)
        needs[name] = {module for module, _ in taken} & set(texts) - {name}
        private += [f"{name} ← {module}.{word}" for module, word in sorted(taken) if re.match("_[^_]", word)]
        used += [f"{name}: {words}" for words in foreign(tree)]
        lengths += [(lines, f"{name}.{word}") for lines, word in functions(tree, code)]
        kinds += [(lines, f"{name}.{word}") for lines, word in classes(tree)]
    sizes = sorted(lines for lines, _ in lengths)
    books = {name: notebook(root / "nbs" / name) for name in pages(root / "nbs")
             if not name.startswith("notes/") and not name.endswith("_notes.ipynb")}
    long = max((len(text.splitlines()), name) for name, text in texts.items())
    top = {"lines": total[0], "code lines": total[1], "docstrings": f"{total[2] / total[0]:.0%}",
           "functions": len(sizes),
           "median, p90, max": ", ".join(str(sizes[k]) for k in (len(sizes) // 2, len(sizes) * 9 // 10, -1)),
           "over 12, over 30": f"{sum(s > 12 for s in sizes) / len(sizes):.0%}, {sum(s > 30 for s in sizes)}",
           "longest module": long, "longest function": max(lengths), "longest class": max(kinds),
           "longest export cell": max(cell for *_, cells in books.values() for cell in cells),
           "private names imported": len(private), "private attributes of others": len(used),
           "import circles": "; ".join(circles(needs)) or "none",
           "prose : code": f"{sum(b[0] for b in books.values()) / sum(b[1] for b in books.values()):.2f}"}
    top = {key: f"{value[0]} {value[1]}" if isinstance(value, tuple) else str(value) for key, value in top.items()}
    ratios = {f"page {re.sub(r'^[0-9]+[a-z]?_|[.]ipynb$', '', name)}": f"prose : code {prose / code:.2f}"
              for name, (prose, code, _) in books.items() if code}
    lists = {**dict.fromkeys(private, "private name"), **dict.fromkeys(used, "private attribute")}
    return {**top, **{f"module {name}": row for name, row in rows.items()}, **ratios, **lists}


def report(*roots):
    """Print the figures of the checkouts side by side; what one of them lacks is a dash."""
    found = [figures(root) for root in roots]
    names = dict.fromkeys(name for rows in found for name in rows)
    width = max(map(len, names))
    for name in names:
        columns = [rows.get(name, "–") for rows in found]
        print(f"{name:{width}}  " + "  ".join(f"{column:40}" for column in columns).rstrip())


if __name__ == "__main__":
    try:
        report(ROOT, *map(Path, sys.argv[1:2]))
    except (OSError, SyntaxError) as error:
        sys.exit(f"There are no figures.\n{error}")
