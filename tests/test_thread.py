"""What runs through the course: one function in its chapters and on the first page, and the map of what needs what."""

import json
import re

import nbformat
import pytest

import notebooks
from friedman import METHODS, RESULTS

NBS = notebooks.NBS
KEPT = json.loads(RESULTS.read_text(encoding="utf-8"))
FIRST = [cell for cell in nbformat.read(NBS / "index.ipynb", as_version=4).cells]


def needs(page):
    """The pages that the head of a page names."""
    return set(re.findall(r"\((\w+)\.ipynb\)", nbformat.read(NBS / f"{page}.ipynb", as_version=4).cells[1].source))


def test_the_record_is_of_these_methods():
    assert KEPT["pages"] == {method: page for method, (page, _) in METHODS.items()}
    assert {len(runs) for runs in KEPT["runs"].values()} == {10}, "python benchmarks/friedman.py"


@pytest.mark.parametrize("method", [m for m, page in KEPT["pages"].items() if page and page != "04_bandwidth"])
def test_a_chapter_prints_what_is_kept(method):
    """Both errors of draw 0, to the digits that are printed; chapter 4 has three draws of its own."""
    cells = notebooks.code_cells(NBS / f"{KEPT['pages'][method]}.ipynb")
    said = "".join(o.get("text", "") for cell in cells for o in cell.outputs
                   if re.search(r"friedman_errors\(|make_friedman1\(1200, random_state=0\)", cell.source))
    numbers = [float(x) for x in re.findall(r"(?<![\w.])\d+\.?\d*(?:e-\d+)?", said)]
    for key in ("clean", "noisy"):
        kept = KEPT["runs"][method]["0"][key]
        assert any(abs(x - kept) <= 0.1 * kept for x in numbers), f"{key}: kept {kept}, the page has {numbers}"


def test_the_map_says_what_chapters_need():
    """Each arrow leads to a chapter one of whose pages names a page of the chapter that it comes from."""
    text = next(cell.source for cell in FIRST if cell.source.startswith("## The map"))
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")][2:]
    named = [[int(found[1]) if (found := re.search(r"\[(\d+) ", part)) else 0 for part in row] for row in rows]
    arrows = []
    for r, row in enumerate(rows):
        for k, part in enumerate(row):
            if part == "↓":
                arrows.append((named[r - 1][k], named[r + 1][k]))
            arrows += [(named[r][k], named[r][k + step]) for sign, step in (("←", -1), ("→", 1)) if sign in part]
        arrows += [(int(number), named[r][2]) for number in re.findall(r"\d+", row[2].partition("also from")[2])]
    assert sorted({chapter for row in named for chapter in row} - {0}) == list(range(1, 15)), "a chapter is missing"
    assert len(arrows) >= 12 and all(min(arrow) for arrow in arrows), arrows
    pages = {n: [path.stem for path in NBS.glob(f"{n:02}*.ipynb")] for n in range(1, 15)}
    for start, end in arrows:
        assert {page[:2] for other in pages[end] for page in needs(other)} & {f"{start:02}"}, f"{end} does not need {start}"
    for end in range(1, 15):  # and what no arrow says is needed by way of another chapter
        wanted = {int(page[:2]) for other in pages[end] for page in needs(other)} - {0, end}  # 0 is the ground floor
        reached, grown = {end}, set()
        while reached != grown:
            grown, reached = reached, reached | {a for a, b in arrows if b in reached}
        assert wanted <= reached or end == 14, f"{end} needs {sorted(wanted - reached)} too"


def test_next_is_the_first_chapter():
    sidebar = [notebooks.name_of(path) for path in notebooks.chapters()]
    assert sidebar[:2] == ["index.ipynb", "01_kernels.ipynb"]
