"""Compare stored outputs of notebook cells with fresh ones; the rule stands at `difference`."""

import base64
import difflib
import io
import re

import numpy as np
from PIL import Image, ImageFilter

IMAGE_RMS, IMAGE_MAX = 0.9, 20  # largest differences of two thumbnails, on a scale to 255
FRAME = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]+=*")  # a PNG image (base64) within HTML
# Digits inside of a word, as in a checksum or a name, belong to the word.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3}(?!\w))?")


def last_digit(number):
    """Return what one unit of the last printed digit of a number is worth."""
    digits, _, exponent = number.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(digits.partition('.')[2])}")


def text_difference(stored, fresh, numbers=True):
    """Say how two texts differ beyond rounding, or return None; see `difference`."""
    texts = [re.sub(r" at 0x[0-9a-fA-F]+", "", text) for text in (stored, fresh)]
    words = ["".join(NUMBER.sub("\0", text).split()) for text in texts]
    if words[0] != words[1]:
        lines = difflib.unified_diff(*(t.splitlines() for t in texts), "stored", "fresh", n=0, lineterm="")
        return "the words differ.\n" + "\n".join(lines)[:2000]
    for a, b in zip(*map(NUMBER.findall, texts)) if numbers else ():
        x, y, allowed = float(a), float(b), 0
        if not re.fullmatch(r"[-+]?[0-9]+", a) or not re.fullmatch(r"[-+]?[0-9]+", b):
            allowed = max(1.001 * min(last_digit(a), last_digit(b)), 1e-3 * max(abs(x), abs(y)))
        if abs(x - y) > allowed:
            return f"{a} was stored, {b} came out"
    return None


def image_difference(stored, fresh):
    """Say how two PNG images (base64) differ to the eye, or return None; see `difference`."""
    images = [Image.open(io.BytesIO(base64.b64decode(png))) for png in (stored, fresh)]
    if any(abs(a - b) > max(4, 0.02 * a) for a, b in zip(images[0].size, images[1].size)):
        return f"a figure of {images[0].size} pixels was stored, {images[1].size} came out"
    size, thumbs = (64, max(1, round(64 * images[0].height / images[0].width))), []
    for image in images:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        small = page.convert("RGB").resize(size, Image.Resampling.BOX)
        thumbs.append(np.asarray(small.filter(ImageFilter.GaussianBlur(1)), dtype=float))
    gap = np.abs(thumbs[0] - thumbs[1])
    rms, largest = float(np.sqrt((gap**2).mean())), float(gap.max())
    if rms > IMAGE_RMS or largest > IMAGE_MAX:
        return (f"the figure looks different: thumbnails are {rms:.2f} apart on average (allowed "
                f"{IMAGE_RMS}) and {largest:.0f} at most (allowed {IMAGE_MAX}), of 255")
    return None


def html_difference(stored, fresh, numbers=True):
    """Say how two pieces of HTML with the images in them differ, or return None; see `difference`."""
    frames = [FRAME.findall(html) for html in (stored, fresh)]
    if len(frames[0]) != len(frames[1]):
        return f"{len(frames[0])} images were stored, {len(frames[1])} came out"
    for k, pair in enumerate(zip(*frames)):
        if found := image_difference(*pair):
            return f"image {k} of {len(frames[0])}: {found}"
    return text_difference(*(FRAME.sub("", html) for html in (stored, fresh)), numbers)


def difference(stored, fresh, numbers=True):
    """Say how two outputs of a cell differ beyond what machines do to them, or return None.

    Text (also HTML) is split into numbers and the rest. The rest must be equal, white space aside.
    Whole numbers must be equal; other numbers may differ by one unit of the last digit that both
    print, or by 1e-3 of their value, whichever is larger. A PNG figure is put on white, shrunk to
    64 pixels width and blurred (Gaussian, 1 pixel); the two must have the same size within 2 % or
    4 pixels, and their colours must differ by at most 0.9 (root mean square) and 20 (largest
    value) of 255. A curve that is missing or moved by more than its width exceeds this; edges that
    are smoothed otherwise do not. PNG images within HTML, such as the frames of a slider, are as many
    and each compared like that. What is written to stderr, warnings included, and errors agree
    with nothing.

    Parameters
    ----------
    stored, fresh : dict
        Outputs as nbformat has them.
    numbers : bool, default True
        False lets numbers differ freely, for cells with the tag ``varies``.

    Returns
    -------
    str or None
    """
    for output, where in ((stored, "stored"), (fresh, "fresh")):
        if output["output_type"] == "error" or output.get("name") == "stderr":
            text = output.get("text") or output.get("evalue", "")
            return f"the {where} output has a warning or an error: {''.join(text).strip()[:800]}"
    kinds = [(output["output_type"], sorted(output.get("data", {}))) for output in (stored, fresh)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} was stored, {kinds[1]} came out"
    pairs = [("text/plain", stored["text"], fresh["text"])] if "text" in stored else []
    pairs += [(kind, stored["data"][kind], fresh["data"][kind]) for kind in kinds[0][1]]
    for kind, a, b in pairs:
        if kind == "image/png":
            found = image_difference("".join(a), "".join(b))
        elif kind == "text/html":
            found = html_difference("".join(a), "".join(b), numbers)
        elif kind.startswith("text/"):
            found = text_difference("".join(a), "".join(b), numbers)
        else:
            found = f"{kind} cannot be compared; print text or draw a PNG figure"
        if found:
            return found
    return None


def agree(stored, fresh):
    """Tell whether two outputs of a cell are the same but for what `difference` allows."""
    return difference(stored, fresh) is None


def merged(outputs):
    """Return the outputs of a cell with neighbouring pieces of one stream put together."""
    result = []
    for output in map(dict, outputs):
        if "name" in output and result and result[-1].get("name") == output["name"]:
            result[-1]["text"] = "".join(result[-1]["text"]) + "".join(output["text"])
        else:
            result.append(output)
    return result


def cell_difference(stored, fresh, varies_too=False):
    """Say how the stored outputs of a cell differ from fresh ones, or return None.

    Of a cell with the tag ``varies`` the numbers are not compared, and only with `varies_too` the
    words are.
    """
    varies = "varies" in stored.metadata.get("tags", [])
    old, new = merged(stored.outputs), merged(fresh.outputs)
    if len(old) != len(new):
        return f"{len(old)} outputs are stored, {len(new)} came out"
    for a, b in zip(old, new):
        if varies and not varies_too and "stderr" not in (a.get("name"), b.get("name")):
            continue
        if found := difference(a, b, numbers=not varies):
            return found
    return None
