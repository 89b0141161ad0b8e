"""Numbers of chapters and sections, and links to what is cited by its number.

A page has the number of its file, ``03a_ridge`` is 3a, and its sections count on: 3a.1. In the text "(3.12)" becomes a
link to the formula with ``\\tag{3.12}`` and "chapter 4" one to the chapter's first page, wherever they stand: not in
code, headings, formulas, and not under "References", where the numbers are other people's. A number that no formula
has is a warning, which ends the build. The formulas also go into ``equations.js``, for previews and for the search.
"""

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import compact_paragraph, desc_signature
from sphinx.util import logging

TAG = re.compile(r"\\tag\{([^}]+)\}")
CITED = re.compile(
    r"(?<!\w)\((?P<equation>(?:[1-9]\d?|[A-Z])\.[1-9]\d?)\)"  # so (0.5), (1.0) and f(1.5) are none
    r"|\b[Cc]hapter[ \u00a0](?P<chapter>\d+[a-z]?)\b"
    r"|(?<=hapters )(?P<chapters>\d+(?:(?:, | and | or | to )\d+)*)")
APART = (nodes.literal, nodes.math, nodes.math_block, nodes.title, nodes.rubric, nodes.FixedTextElement, nodes.raw,
         desc_signature)
logger = logging.getLogger(__name__)


def number(page):
    """Return the number of a page: 3a of ``03a_ridge``; None where it has none."""
    found = re.match(r"0*(\d+[a-z]?)_", page)
    return found and found[1]


def first_pages(pages):
    """Return ``{number: page}``; a chapter's number alone means its first page."""
    found = {}
    for page in sorted(filter(number, pages)):
        found[number(page)] = page
        found.setdefault(number(page).rstrip("abcdefghijklmnopqrstuvwxyz"), page)
    return found


def number_sections(app, env):
    """Give each page and its sections their numbers, in titles, sidebar and contents."""
    for page, toc in env.tocs.items():
        if not number(page):
            continue
        numbers, count = {}, 0
        env.titles[page]["secnumber"] = (number(page),)
        for entry in toc.findall(compact_paragraph):
            depth, above = 0, entry
            while above := above.parent:
                depth += isinstance(above, nodes.bullet_list)
            if depth > 2 or "skip_section_number" in entry:
                numbers.setdefault(entry[0]["anchorname"], ())
                continue
            count += depth == 2
            numbers[entry[0]["anchorname"]] = entry[0]["secnumber"] = (number(page), count)[:depth]
        env.toc_secnumbers[page] = numbers
    return []  # no page is to be read again


def collect(app, doctree):
    """Note the numbered formulas of a page, and give each an anchor."""
    env = app.env
    found = env.equations = getattr(env, "equations", {})
    for formula in [*doctree.findall(nodes.math_block), *doctree.findall(nodes.math)]:
        for tag in TAG.findall(formula.astext()):
            if found.setdefault(tag, (env.docname, formula.astext()))[0] != env.docname:
                logger.warning(f"({tag}) is also a formula of {found[tag][0]}", location=formula)
            formula["ids"].append(f"eq-{tag}")


def texts(doctree):
    """Yield the pieces of running text, each with the link that it stands in, or None."""
    apart = {id(section) for section in doctree.findall(nodes.section) if section[0].astext() == "References"}
    for rubric in doctree.findall(nodes.rubric):
        if rubric.astext() == "References":  # of a docstring: up to the next heading
            for node in rubric.parent[rubric.parent.index(rubric) + 1:]:
                if isinstance(node, nodes.rubric):
                    break
                apart.add(id(node))
    for text in list(doctree.findall(nodes.Text)):
        above = [text.parent]
        while above[-1].parent is not None:
            above.append(above[-1].parent)
        if not any(isinstance(node, APART) or id(node) in apart for node in above):
            yield text, next((node for node in above if isinstance(node, nodes.reference)), None)


def citations(text):
    """Yield what is cited in a text: ``(start, end, "equation" or "chapter", number)``."""
    for match in CITED.finditer(text):
        kind = match.lastgroup
        if kind == "chapters":
            for one in re.finditer(r"\d+", match[0]):
                yield match.start() + one.start(), match.start() + one.end(), "chapter", one[0]
        else:
            yield *match.span(), kind, match[kind]


def link(app, doctree, page):
    """Put the links on a page."""
    places = {("equation", tag): (home, f"#eq-{tag}") for tag, (home, _) in app.env.equations.items()}
    places |= {("chapter", key): (home, "") for key, home in first_pages(app.env.titles).items()}
    for text, inside in texts(doctree):
        parts, end = [], 0
        for start, stop, kind, what in citations(text):
            if inside is not None and (kind == "chapter" or "#" in inside.get("refuri", "#")
                                       or not inside.get("internal")):
                continue  # the author says where it leads
            if (kind, what) not in places:
                logger.warning(f"{kind} {what} is cited, and there is none", location=text.parent)
                continue
            home, place = places[kind, what]
            uri = app.builder.get_relative_uri(page, home) + place
            if inside is None:
                parts += [nodes.Text(text[end:start]),
                          nodes.reference("", text[start:stop], refuri=uri, internal=True, classes=[kind])]
                end = stop
            elif inside["refuri"] != uri.partition("#")[0]:
                logger.warning(f"equation {what} is not on {inside['refuri']}", location=inside)
            else:  # from the page to its formula
                inside["refuri"] = uri
                inside["classes"].append(kind)
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def write(app, exception):
    """Write the formulas for the scripts: ``{number: [page, its title, TeX]}``."""
    if exception is None:
        titles = app.env.titles
        table = {tag: [page, titles[page].astext(), tex] for tag, (page, tex) in app.env.equations.items()}
        text = f"window.equations = {json.dumps(table, ensure_ascii=False, indent=0)};\n"
        (Path(app.outdir) / "_static/equations.js").write_text(text, encoding="utf-8")


def setup(app):
    """Register the above."""
    app.connect("doctree-read", collect)
    app.connect("env-get-updated", number_sections, priority=900)  # after Sphinx, which resets the numbers
    app.connect("doctree-resolved", link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
