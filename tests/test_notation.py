"""The notation page: every public argument that stands for a symbol is on it, and it says the truth."""

import functools
import importlib
import inspect
import re
from dataclasses import is_dataclass

import nbformat
import pytest

import notebooks
import rfteach

NBS = notebooks.NBS
SYNC = "To mend: make sync"

# Arguments that stand for no symbol. Where a name is a symbol for one callable and a setting of
# another, write the latter as "callable.name", for example "plot_rate.label". Keep the order.
SETTINGS = [
    "AT", "Between.high", "Between.low", "Candidate.start", "Cauchy.T",
    "CenterDescent.order", "CenterDescent.space", "CentersClassifier.sample_weight",
    "CentersRegressor.sample_weight", "CosineMap.x", "EigenProClassifier.sample_weight",
    "EigenProRegressor.sample_weight", "Exercise.seconds", "FeatureMap.x", "Gaussian.T",
    "GridAnova.C", "GridAnova.u", "HARFERegressor.w", "Independent.T", "Independent.w",
    "Kernel.T", "Laplacian.T", "Laplacian1.T", "Law.p", "Law.v", "Law.w", "Matern.T",
    "Metric.Z", "Moments.D", "Moments.N", "Moments.w", "PowerExponential.T",
    "PowerExponential1.T", "Probabilities.slope", "ProjectedSurrogate.n_reduced",
    "ProjectedSurrogate.sample_weight", "Q", "Quantiles.T", "Quantiles.w",
    "RFMClassifier.n_centers", "RFMRegressor.n_centers", "SRFERegressor.w",
    "SparseExpansion.w", "Spectrum.B", "Spectrum.errors", "Spectrum.floor",
    "Spectrum.parts", "Spectrum.w", "Stream.N", "Stream.X", "Stream.Y", "Stream.alphas",
    "Stream.features", "Stream.v", "Talk.T", "Triangle.D", "Triangle.N", "Triangle.w",
    "Uniform.T", "Uniform.bounds", "Uniform.w", "WaveAnova.u", "WaveFeatures.weights",
    "Waves.scale", "X_test", "add_gram.G", "add_rows.w", "add_up", "alt", "anova",
    "answer", "any_code", "args", "argv", "attn_mask", "average_attn_weights", "ax",
    "axes", "backend", "batch_first", "batches", "begin_at_centers.factor",
    "best_range.model", "best_range.tried", "best_range.w", "bias", "block_weights.w",
    "blocks", "box", "budget", "by_column", "by_others.B", "by_others.spectrum",
    "by_others.w", "cache", "cache_size", "calibrate.w", "call", "callback", "case",
    "causal", "centre_.B", "centre_.w", "centred.B", "centred.N", "centred.w", "certify",
    "checkpoint", "choice",
    "cholesky.M", "classes", "codes", "coefs", "collapse", "columns", "compare",
    "compare.scale", "complete", "coverage", "criterion", "description", "design.w",
    "device", "distances", "download", "draw", "draw_pairs.m", "draws", "dropout",
    "dtype", "early_stopping", "embed_dim", "entry", "epochs", "estimator", "exercise",
    "experiments", "exponents", "extra", "factor", "factor_solve.B", "factor_solve.L",
    "factorise.means", "factorise.w", "factors", "facts", "fail", "family",
    "feature_map.model", "figsize", "find_widths.w", "fingerprint.run", "finite", "fit",
    "fit_intercept", "fits_float32.y", "folder", "form", "form_of_data.model", "found",
    "friedman_errors.model", "function", "functions", "gain", "gated", "gather",
    "go_on", "grade.seconds", "gram.B", "gram_cg.w", "gram_cg_shared.w",
    "gram_cg_without.w", "group", "grow", "handed", "head", "heads", "height", "held",
    "input_features", "inputs", "is_causal", "is_computed.value", "item_bytes", "j",
    "judge.model", "judge.order", "judge.units", "kdim", "keep", "keeps_dtype", "kept",
    "kept_part.noise", "key_mask", "key_padding_mask", "kind", "kwargs", "label",
    "landmark_ridge.w", "largest_waves.n", "last", "late", "law",
    "law_of_spectrum.like", "law_of_spectrum.spectrum", "law_polynomials.p", "laws",
    "learn_metric.w", "least_error.probability", "left", "left_name", "left_out",
    "left_out.places", "limited.seconds", "local_scale.place", "machine", "match",
    "max_bytes", "max_candidates", "max_iter", "max_levels", "measure.seconds",
    "median_bandwidth.norm", "memory", "method", "metric", "missing", "module",
    "modules", "momentum", "more", "more_to_learn.others", "more_to_learn.w", "most",
    "moved_in.w", "n_bytes", "n_draws", "n_folds", "n_iter_no_change", "n_levels",
    "n_places", "n_points", "n_simple", "n_sweeps", "n_waves", "name", "names",
    "narrower.loss", "narrower.width", "ndim", "near_range.X", "near_range.w",
    "need_weights", "normalize", "num_heads", "offset", "offsets", "once", "one_column",
    "optimizer", "options", "orthogonal", "other", "out", "outer_product.w", "outside",
    "overwrite", "own", "pair_distances.norm", "panels", "path", "per_input", "phases",
    "plan", "planes", "planned", "predicted", "predictions", "predictions.model",
    "predictor.model", "progress", "proposals", "pursuit", "question", "raised",
    "raised_cholesky.M", "raised_cholesky.share", "random_state", "random_waves.n",
    "ranges.X", "ranges.w", "ranks", "rcond", "reach_of.inside", "reason", "record",
    "records", "redraw", "reduced_svd.noise", "refits.model", "report", "reset",
    "residuals", "return_X_y", "return_interval", "return_std", "returns",
    "rfm_rounds.w", "right", "right_name", "rng", "rounding_of_means.eps",
    "rounding_of_means.means", "row_bytes", "row_hashes.quick", "rows",
    "rows_for_gram.N", "rtol", "rtol_single", "rules", "sampling", "search", "seed",
    "select_waves.n", "select_waves.noise", "selection", "sensitivity.model",
    "sensitivity.noise", "settings", "settle.C", "shape", "share_attributes.model",
    "side", "sigmas", "sign", "single", "sizes", "slider.start", "slider.values",
    "slopes", "smoothed.w", "solver", "source", "sparse", "spec", "split", "squares",
    "standardize", "stated", "statistic", "store.C", "store.model", "store.reach",
    "sums", "supports", "symmetric_.G", "talk", "targets_of_rows.T",
    "targets_of_rows.like", "tell", "tensors", "thing", "tier", "tile", "tiles.m",
    "time_budget", "timeout", "title", "to_module.model", "tol", "topic", "topics",
    "transposed", "undone", "units", "upper", "validation", "validation_fraction",
    "vdim", "verbose", "violates", "vmax", "vmin", "warm_start", "wave_features.phi",
    "wave_features.scale", "wave_scores.features", "wave_scores.w",
    "weighted_quantiles.w", "yerr",
]


def table(text):
    """Return the rows of the first table in a Markdown text, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


@functools.cache
def chapters():
    """Return ``{file: (rows, rest)}``: the table under "## Symbols", and all other text and code."""
    found = {}
    for path in sorted(notebooks.chapters(), key=lambda path: not path.name.startswith("00")):
        sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
        rows = [row for text in sources if text.startswith("## Symbols\n") for row in table(text)]
        if rows:
            rest = "\n".join(text for text in sources if not text.startswith("## Symbols\n"))
            found[notebooks.name_of(path)] = rows, rest
    return found


@functools.cache
def page_tables():
    """Return the rows of the page's tables, as its stored outputs show them."""
    outputs = [output["data"]["text/markdown"] for cell in notebooks.code_cells(NBS / "notation.ipynb")
               for output in cell.outputs if "text/markdown" in output.get("data", {})]
    assert len(outputs) == 3, f"nbs/notation.ipynb shows {len(outputs)} tables, not 3. {SYNC}"
    return [table(text) for text in outputs]


def named(cell):
    """Return the names in backticks."""
    return set(re.findall(r"`(\w+)`", cell))


@functools.cache
def parameters():
    """Return ``{(module, callable): names of its arguments}``; a class has those of its methods too.

    The constructors of dataclasses are left out: the library fills them, and users read them.
    """
    found = {}
    for stem in sorted(rfteach._PUBLIC):
        home = importlib.import_module(f"rfteach.{stem}")
        for name in getattr(home, "__all__", []):
            thing = getattr(home, name)
            parts = [thing] if inspect.isroutine(thing) else []
            if inspect.isclass(thing):
                parts = [getattr(thing, key) for key in dir(thing) if key == "__call__" or key[0] != "_"]
                parts = [part for part in parts if inspect.isfunction(part)
                         and part.__module__.startswith("rfteach.")]
                if not is_dataclass(thing) and not issubclass(thing, BaseException):
                    parts.append(thing)
            names = [key for part in parts for key in inspect.signature(part).parameters]
            if parts:
                found[stem, name] = [key for key in dict.fromkeys(names) if key != "self"]
    assert len(found) > 80, "the search for public functions and classes finds too few"
    return found


def fail(title, lines, remedy):
    pytest.fail("\n".join([title, *(f"  {line}" for line in lines), remedy]), pytrace=False)


def test_every_argument_is_a_symbol_or_a_setting():
    taken = {(module, named(name).pop()): named(arguments) for module, name, arguments in page_tables()[2]}
    lost = [f"{module}.{name}: {key}" for (module, name), keys in parameters().items() for key in keys
            if not {key, f"{name}.{key}"} & set(SETTINGS) and key not in taken.get((module, name), ())]
    if lost:
        fail("Arguments that are neither on the notation page nor known as settings:", lost,
             "To mend: make sync. What it leaves: if it stands for a symbol, add a row to the table under '## Symbols' of the "
             "chapter\nthat defines it (a notebook in the sidebar of _quarto.yml), then again: make sync. "
             "If not, add the name to SETTINGS in tests/test_notation.py.")


def test_settings_are_in_use_and_no_symbols():
    found = parameters()
    taken = {key for keys in found.values() for key in keys}
    taken |= {f"{name}.{key}" for (_, name), keys in found.items() for key in keys}
    if unused := [name for name in SETTINGS if name not in taken]:
        fail("SETTINGS has names that nothing takes:", unused, "To mend: remove them from SETTINGS")
    symbols = {name for row in page_tables()[0] for name in named(row[1])}
    if both := [name for name in SETTINGS if name in symbols]:
        fail("SETTINGS has names that are symbols on the notation page:", both,
             "To mend: remove them from SETTINGS, or write them as callable.name")
    assert SETTINGS == sorted(set(SETTINGS)), "To mend: sort SETTINGS, each name once"


def test_rows_are_complete_and_true():
    faults = []
    formulas = {file: re.sub(r"\s", "", " | ".join(re.findall(r"\$\$?([^$]+)", rest)))
                for file, (_, rest) in chapters().items()}
    for symbol, code, shape, meaning, link, _ in page_tables()[0]:
        letters = [re.escape(re.sub(r"\s", "", letter)) for letter in re.findall(r"\$(.+?)\$", symbol)]
        if not (letters and shape and meaning):
            faults.append(f"{symbol} {code}: symbol, shape or meaning is missing")
        file = link.partition("](")[2][:-1]
        if file not in formulas:
            faults.append(f"{symbol} {code}: {link} leads to no chapter with a table")
        elif not (any(re.search(rf"(?<![a-zA-Z\\]){letter}(?![a-zA-Z])", formulas[file]) for letter in letters)
                  or any(re.search(rf"\b{name}\b", chapters()[file][1]) for name in named(code))):
            faults.append(f"{symbol} {code}: {file} does not use it outside of its table")
    if faults:
        fail("Rows of the notation page:", faults,
             "To mend: correct the table under '## Symbols' of the chapter, then: make sync")


def test_no_symbol_is_defined_twice():
    first, twice = {}, []
    for file, (rows, _) in chapters().items():
        for symbol, code, *_ in rows:
            for pair in [(symbol, name) for name in named(code) or [""]]:
                if pair in first:
                    twice.append(f"{symbol} {pair[1]}: in {first[pair]} and in {file}")
                first.setdefault(pair, file)
    if twice:
        fail("Symbols that two tables define:", twice,
             "To mend: keep the row of the chapter that is read first; for another meaning write "
             "'(of something)' behind the symbol")


def test_the_page_shows_the_tables_of_the_chapters():
    expected = [[*row, file] for file, (rows, _) in chapters().items() for row in rows]
    stored = [[*row[:4], row[4].partition("](")[2][:-1]] for row in page_tables()[0]]
    lines = [f"only in the chapter: {row}" for row in expected if row not in stored]
    lines += [f"only on the page: {row}" for row in stored if row not in expected]
    if lines or expected != stored:
        fail("nbs/notation.ipynb is not what the chapters say:", lines or ["the order differs"], SYNC)


