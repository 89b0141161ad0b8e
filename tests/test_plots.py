"""The figure style, the two shared plots and sliders: fits against SciPy, honest labels, frames that hold still, refusals."""
import base64
import io
import json
import re

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from rfteach.plots import COLORS, LINESTYLES, MARKERS, Rate, fit_rate, plot_rate, set_style, show_gram, slider


@pytest.fixture
def ax():
    with matplotlib.rc_context():
        set_style()
        fig, ax = plt.subplots()
        yield ax
        plt.close(fig)


def noisy_power_law(n=9, seed=0):
    rng = np.random.default_rng(seed)
    x = np.geomspace(3, 4000, n)
    return x, 2 * x**-0.7 * np.exp(0.2 * rng.standard_normal(n))


@pytest.mark.parametrize("n", [3, 4, 30])
def test_fit_agrees_with_scipy(n):
    x, y = noisy_power_law(n)
    rate, reference = fit_rate(x, y), stats.linregress(np.log(x), np.log(y))
    assert rate.slope == pytest.approx(reference.slope, rel=1e-10)
    assert rate.stderr == pytest.approx(reference.stderr, rel=1e-8)
    assert rate.intercept == pytest.approx(reference.intercept, rel=1e-10)


def test_fit_is_equivariant():
    x, y = noisy_power_law()
    rate = fit_rate(x, y)
    scaled = fit_rate(10 * x, 7 * y)
    assert scaled.slope == pytest.approx(rate.slope)
    assert scaled.stderr == pytest.approx(rate.stderr)
    order = np.random.default_rng(1).permutation(len(x))
    assert fit_rate(x[order], y[order]).slope == pytest.approx(rate.slope)
    assert fit_rate(y, x).slope != pytest.approx(rate.slope)


def test_rate_evaluates_and_is_frozen():
    rate = fit_rate([1, 10, 100], [5, 0.5, 0.05])
    assert rate([1, 1000]) == pytest.approx([5, 0.005])
    with pytest.raises(AttributeError):
        rate.slope = 0


@pytest.mark.parametrize(
    "slope, stderr, text",
    [(-0.5, 0.0123, "slope −0.500 ± 0.012"), (-2, 0, "slope −2.0000 ± 0.0001"), (1.5, 0.4, "slope 1.50 ± 0.40"),
     (0.25, 12.0, "slope 0.25 ± 12.00")],
)
def test_text_of_a_rate(slope, stderr, text):
    assert str(Rate(slope, stderr, 0.0)) == text


def test_plot_shows_what_it_returns(ax):
    x, y = noisy_power_law()
    rate = plot_rate(ax, x, y, 0.1 * y, label="error", reference=-0.5)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    points, fit, reference = ax.get_lines()[0], *ax.get_lines()[-2:]
    np.testing.assert_array_equal(points.get_xydata(), np.c_[x, y])
    u, v = np.log(fit.get_xydata()).T
    assert np.diff(v) / np.diff(u) == pytest.approx(rate.slope)
    u, v = np.log(reference.get_xydata()).T
    assert np.diff(v) / np.diff(u) == pytest.approx(-0.5)
    labels = ax.get_legend_handles_labels()[1]
    assert f"error: {rate}" in labels and "slope −0.5" in labels


def test_error_bars_do_not_weigh_the_fit(ax):
    x, y = noisy_power_law()
    assert plot_rate(ax, x, y, y * np.linspace(0, 3, len(y))) == plot_rate(ax, x, y) == fit_rate(x, y)
    ax.figure.canvas.draw()  # bars that reach below zero are clipped, not an error


def test_series_get_their_own_colour_and_marker(ax):
    x, y = noisy_power_law()
    for factor in range(1, 4):
        plot_rate(ax, x, factor * y)
    drawn = [container.lines[0] for container in ax.containers]
    assert [line.get_marker() for line in drawn] == list(MARKERS[:3])
    assert [line.get_color() for line in drawn] == list(COLORS[:3])


def test_more_series_than_colours(ax):
    x, y = noisy_power_law()
    for factor in range(len(COLORS) + 1):
        plot_rate(ax, x, (factor + 1) * y)
    first, last = (ax.containers[i].lines[0] for i in (0, -1))
    assert first.get_color() == last.get_color()


@pytest.mark.parametrize("top", [50, 500, 1e6])
def test_tick_labels_are_few_and_do_not_overlap(ax, top):
    x = np.geomspace(10, top, 5)
    plot_rate(ax, x, x**-0.5)
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels(which="both") if t.get_text()]
    low, high = ax.get_xlim()
    ticks = [t for t, label in zip(ax.get_xticks(), ax.get_xticklabels()) if low <= t <= high and label.get_text()]
    assert len(ticks) >= 2
    boxes = sorted((b for b in boxes if b.width > 0), key=lambda b: b.x0)
    inside = [b for b in boxes if ax.bbox.x0 <= (b.x0 + b.x1) / 2 <= ax.bbox.x1]
    assert all(a.x1 < b.x0 for a, b in zip(inside, inside[1:]))


@pytest.mark.parametrize(
    "convert",
    [list, np.asarray, np.float32, lambda a: torch.tensor(a), lambda a: torch.tensor(a, requires_grad=True),
     lambda a: torch.tensor(a, dtype=torch.bfloat16), lambda a: pytest.importorskip("pandas").Series(a)],
    ids=["list", "numpy", "float32", "torch", "torch with gradient", "bfloat16", "pandas"],
)
def test_kinds_of_input(ax, convert):
    x, y = [1.0, 2.0, 4.0, 8.0], [4.0, 2.0, 1.0, 0.5]
    assert plot_rate(ax, convert(x), convert(y)).slope == pytest.approx(-1)


BAD_SERIES = {
    "x must be positive": ([0, 1, 2], [1, 2, 3]),
    "y must be positive": ([1, 2, 3], [1, -2, 3]),
    "x must be a non-empty": ([[1, 2, 3]], [1, 2, 3]),
    "y must be a non-empty": ([1, 2, 3], []),
    "y holds 1 values that are NaN": ([1, 2, 3], [1, np.nan, 3]),
    "x holds 1 values that are NaN or infinite": ([1, np.inf, 3], [1, 2, 3]),
    "one length": ([1, 2, 3], [1, 2, 3, 4]),
    "at least three": ([1, 2], [1, 2]),
    "two different x": ([2, 2, 2], [1, 2, 3]),
}


@pytest.mark.parametrize("message", BAD_SERIES)
def test_bad_series_is_refused_and_nothing_drawn(ax, message):
    with pytest.raises(ValueError, match=message):
        plot_rate(ax, *BAD_SERIES[message])
    assert not ax.has_data()


@pytest.mark.parametrize("yerr", [[1, 1], [1, 1, -1], [[1, 1, 1]], [1, np.nan, 1]])
def test_bad_error_bars_are_refused(ax, yerr):
    with pytest.raises(ValueError, match="yerr"):
        plot_rate(ax, [1, 2, 3], [1, 2, 3], yerr)
    assert not ax.has_data()


@pytest.mark.parametrize("bad", [["a", "b", "c"], [1j, 2, 3]])
def test_values_that_are_no_real_numbers(ax, bad):
    with pytest.raises(TypeError, match="x must hold real numbers"):
        plot_rate(ax, bad, [1, 2, 3])


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_gram_image(ax, kind):
    K = np.exp(-0.5 * (np.linspace(0, 3, 5)[:, None] - np.linspace(0, 3, 4)) ** 2)
    image = show_gram(ax, kind(K), "K")
    np.testing.assert_array_equal(image.get_array(), K)
    assert image.get_clim() == (0, 1) and image.colorbar.extend == "neither"
    assert ax.get_title() == "K" and ax.get_xlabel() and ax.get_ylabel()
    assert not any(line.get_visible() for line in ax.get_xgridlines() + ax.get_ygridlines())


@pytest.mark.parametrize(
    "K, extend", [([[1, 0.5]], "neither"), ([[1.2, 0]], "max"), ([[1, -0.2]], "min"), ([[1.2, -0.2]], "both"),
                  ([[1 + 1e-9, 0]], "neither")]
)
def test_gram_shows_that_entries_leave_the_range(ax, K, extend):
    assert show_gram(ax, K).colorbar.extend == extend


@pytest.mark.parametrize("K", [[1.0, 2.0], [[]], [[np.nan]], [[np.inf, 1]]])
def test_bad_gram_is_refused(ax, K):
    with pytest.raises(ValueError, match="K "):
        show_gram(ax, K)


@pytest.mark.parametrize("range_", [(1, 0), (1, 1), (0, np.nan)])
def test_bad_colour_range(ax, range_):
    with pytest.raises(ValueError, match="vmin must be smaller"):
        show_gram(ax, np.eye(2), None, *range_)


def test_style_is_local_on_request_and_leaves_markers_alone():
    before = matplotlib.rcParams["figure.dpi"], matplotlib.rcParams["axes.prop_cycle"]
    with matplotlib.rc_context():
        set_style()
        fig, ax = plt.subplots()
        dots, = ax.plot([1, 2], [1, 2], "o")
        line, = ax.plot([1, 2], [2, 1])
        assert dots.get_linestyle() == "None" and dots.get_color() == COLORS[0]
        assert line.get_linestyle() == LINESTYLES[1] and line.get_marker() == "None"
        assert fig.get_layout_engine() is not None
        plt.close(fig)
    assert (matplotlib.rcParams["figure.dpi"], matplotlib.rcParams["axes.prop_cycle"]) == before


def test_lists_of_the_style_have_one_length():
    assert len(COLORS) == len(LINESTYLES) == len(MARKERS) == len(set(COLORS))


# --- Figures that move -----------------------------------------------------------------------

def growing(ax, value):
    ax.plot([0, 1, value], [0, value, 1000 * value])
    ax.set(xlabel="x", ylabel="y")


def pixels(frame):
    return np.asarray(Image.open(io.BytesIO(frame)).convert("RGB")).astype(int)


@pytest.fixture
def style():
    with matplotlib.rc_context():
        set_style()
        yield


def test_frames_hold_still(style):
    """The ends of the axes and their names stand in the same pixels though each value has other limits and ticks."""
    moved = slider(growing, [1, 3, 100], "t", alt="A line.")
    frames = [pixels(frame) for frame in moved.frames]
    assert {frame.shape for frame in frames} == {(418, 660, 3)}
    for frame in frames[1:]:
        margin = np.abs(frame[:, :80] - frames[0][:, :80]).max(), np.abs(frame[380:] - frames[0][380:]).max()
        assert max(margin) < 60, "the margins differ by more than the choice of colours"
        assert np.abs(frame - frames[0]).max() > 100, "the line moves"
    apart = [pixels(slider(growing, [value, value], "t", alt="A line.").frames[0]) for value in (1, 100)]
    assert np.abs(apart[0][:, :80] - apart[1][:, :80]).max() > 100, "alone, each would have margins of its own"


def test_limits_hold_every_frame_and_keep_their_direction(style):
    seen = []

    def draw(ax, value):
        ax.set(xlim=(value, 0), ylim=(1, 10**value), yscale="log")
        seen.append(ax)

    slider(draw, [1, 2, 4], "t", alt="Nothing.")
    assert {ax.get_xlim() for ax in seen} == {(4, 0)} and {ax.get_ylim() for ax in seen} == {(1, 1e4)}


def test_frames_are_small_and_look_like_the_figure(style):
    frame, = {slider(growing, [2, 2], "t", alt="A line.").frames[0]}
    fig, ax = plt.subplots()
    growing(ax, 2)
    fig.canvas.draw()
    full = np.asarray(fig.canvas.buffer_rgba())[..., :3].astype(int)
    plt.close(fig)
    assert len(frame) < 12_000
    assert np.abs(pixels(frame) - full).mean() < 0.5 and np.abs(pixels(frame) - full).max() < 60


def test_what_is_said_of_a_frame(style):
    moved = slider(lambda ax, value: f"error {value**2}" if value > 0 else None, [-1.5, 2], "t", spec=".2f", alt="Nothing.")
    assert moved.said == ("−1.50", "2.00 · error 4") and moved.start == 1
    assert repr(moved) == "<Slider t: −1.50 to 2.00 · error 4, 2 frames>"
    assert slider(lambda ax, value: None, ["ten", "all"], "rows", alt="Nothing.", start=0).said == ("ten", "all")


def test_what_a_notebook_displays(style):
    moved = slider(lambda axes, value: axes[1].plot([value]) and None, [1, 2], "a < b & </script>", panels=2, start=0,
                   alt='Two "panels".', question="Is 1 < 2?")
    shown = moved._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]) == moved.frames[0] and shown["text/plain"] == repr(moved)
    html = shown["text/html"]
    assert html.startswith('<div class="slider">') and html.count("</script>") == 1
    assert "Is 1 &lt; 2?" in html and 'alt="Two &quot;panels&quot;."' in html
    assert not re.search(r"https?:|src=\"(?!data:)| id=", html), "it asks for nothing, and two of them do not meet"
    values = json.loads(re.search(r"const \{.*?\} = (\{.*?\});", html, re.S)[1])
    assert values["label"] == moved.label and values["said"] == list(moved.said) and values["start"] == 0
    assert [base64.b64decode(frame) for frame in values["frames"]] == list(moved.frames)
    assert not plt.get_fignums(), "nothing is left open"


@pytest.mark.parametrize("change, message", [
    ({"values": [1]}, "at least two, and start one of their positions, got 1"),
    ({"start": 2}, "got 2 and 2"), ({"start": -1}, "got 2 and -1"),
    ({"label": " "}, "label and alt must not be empty"), ({"alt": ""}, "label and alt must not be empty"),
])
def test_bad_sliders_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        slider(**{"draw": growing, "values": [1, 2], "label": "t", "alt": "A line.", **change})


def test_a_remark_is_text():
    with pytest.raises(TypeError, match="draw must return a text or None, got float"):
        slider(lambda ax, value: 0.5, [1, 2], "t", alt="Nothing.")


def test_a_masked_array_is_refused():
    assert fit_rate([1.0, 2, 3], np.ma.array([1.0, 4, 9])).slope == pytest.approx(2)  # nothing is
    with pytest.raises(ValueError, match="y is a masked array; drop what is masked"):
        fit_rate([1.0, 2, 3, 4], np.ma.masked_array([1.0, 4, 9, 1e6], mask=[0, 0, 0, 1]))
