"""Formulas as LaTeX, from pages that contain their source: MathML's annotation (also written by
KaTeX and MediaWiki), MathJax's scripts, and the `alt` of pictures made by MediaWiki, WordPress,
QuickLaTeX, Moodle and public services. The rendered formula next to the source is left out."""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import has_word, packed, same, starts_with
from curate.extract.tags import ATTR
from llmcurate.base.kernels import njit

MAX_ADDRESS = 80  # first bytes of `src`, in which a service's name is looked for

_ALT, _CLASS, _DISPLAY = ATTR["alt"], ATTR["class"], ATTR["display"]
_ID, _SRC, _TYPE = ATTR["id"], ATTR["src"], ATTR["type"]


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


_MATH, _END_MATH, _TEX = _bytes("<math"), _bytes("</math"), _bytes("application/x-tex")
_BLOCK, _SCRIPT, _MODE = _bytes("block"), _bytes("math/tex"), _bytes("display")
_KATEX, _PREVIEW = _bytes("katex-html"), _bytes("mathjax_preview")
_FRAME = _bytes("mathjax-element-")
_DISPLAY_STYLE = _bytes("{\\displaystyle ")
_CDATA, _END_CDATA = _bytes("% <![cdata["), _bytes("%]]>")
# Words in `class`, and substrings of `src`, of pictures of formulas.
_PICTURES, _PICTURE_ENDS = packed(
    "latex tex texrender mwe-math-fallback-image-inline mwe-math-fallback-image-display "
    "ql-img-inline-formula ql-img-displayed-equation"
)
_DISPLAYED, _DISPLAYED_ENDS = packed("mwe-math-fallback-image-display ql-img-displayed-equation")
_SERVICES, _SERVICE_ENDS = packed(
    "latex.php? codecogs.com/ mathtex.cgi? mimetex.cgi? cht=tx /tex/pix.php /math/render/"
)


@njit(nogil=True)
def _has(data, a, z, part):
    for i in range(a, z - len(part) + 1):
        if data[i] == part[0] and starts_with(data, i, z, part):
            return True
    return False


@njit(nogil=True)
def math_source(data, i, z):
    """Find the TeX annotation in the `math` element whose content begins at i. Return (its start,
    its end, the end of the element's content), or (0, 0, 0) if nothing is found. The search stops
    at the next `math`, so a page is read only once."""
    a = e = 0
    while i < z:
        if data[i] == 60:
            if starts_with(data, i, z, _END_MATH):
                return (a, e, i) if e else (0, 0, 0)
            if starts_with(data, i, z, _MATH):
                break
            if a and not e:
                e = i
        elif not a and data[i] == 97 and starts_with(data, i, z, _TEX):
            while i < z and data[i] != 62:
                i += 1
            a = i + 1
        i += 1
    return 0, 0, 0


@njit(nogil=True)
def is_display(data, seen, spans):
    """Return True if a `math` element or a MathJax script is displayed on its own line."""
    if seen >> _DISPLAY & 1:
        return same(data, spans[2 * _DISPLAY], spans[2 * _DISPLAY + 1], _BLOCK)
    return seen >> _TYPE & 1 and _has(data, spans[2 * _TYPE], spans[2 * _TYPE + 1], _MODE)


@njit(nogil=True)
def is_tex_script(data, seen, spans):
    a, z = spans[2 * _TYPE], spans[2 * _TYPE + 1]
    return seen >> _TYPE & 1 and starts_with(data, a, z, _SCRIPT)


@njit(nogil=True)
def picture_source(data, seen, spans):
    """Return (start, end, True if displayed on its own line) of the LaTeX in the `alt` of a picture
    that shows a formula, or (0, 0, False) for another picture."""
    if not seen >> _ALT & 1:
        return 0, 0, False
    a, z = spans[2 * _ALT], spans[2 * _ALT + 1]
    if seen >> _CLASS & 1:
        s, e = spans[2 * _CLASS], spans[2 * _CLASS + 1]
        if has_word(data, s, e, _PICTURES, _PICTURE_ENDS):
            return a, z, has_word(data, s, e, _DISPLAYED, _DISPLAYED_ENDS)
    if seen >> _SRC & 1:
        s = spans[2 * _SRC]
        e = min(spans[2 * _SRC + 1], s + MAX_ADDRESS)
        for k in range(len(_SERVICE_ENDS) - 1):
            if _has(data, s, e, _SERVICES[_SERVICE_ENDS[k] : _SERVICE_ENDS[k + 1]]):
                return a, z, False
    return 0, 0, False


@njit(nogil=True)
def shows_formula(data, seen, spans):
    """Return True if an element is a formula rendered by KaTeX or MathJax 2 next to its source."""
    if seen >> _CLASS & 1:
        a, z = spans[2 * _CLASS], spans[2 * _CLASS + 1]
        if same(data, a, z, _KATEX) or same(data, a, z, _PREVIEW):
            return True
    return seen >> _ID & 1 and starts_with(data, spans[2 * _ID], spans[2 * _ID + 1], _FRAME)


@njit(nogil=True)
def _stripped(data, a, z):
    while a < z and data[a] <= 32:
        a += 1
    while a < z and data[z - 1] <= 32:
        z -= 1
    return a, z


@njit(nogil=True)
def trimmed(data, a, z):
    r"""Return (start, end) of data[a:z] without outer blanks, `$`, CDATA and `\displaystyle`."""
    a, z = _stripped(data, a, z)
    if starts_with(data, a, z, _CDATA):
        a += len(_CDATA)
        if starts_with(data, max(a, z - len(_END_CDATA)), z, _END_CDATA):
            z -= len(_END_CDATA)
    while z - a > 1 and data[a] == 36 and data[z - 1] == 36:
        a, z = a + 1, z - 1
    if z > a and data[z - 1] == 125 and starts_with(data, a, z, _DISPLAY_STYLE):
        depth, i = 0, a
        while i < z:
            if data[i] == 123:
                depth += 1
            elif data[i] == 125:
                depth -= 1
            if depth == 0:
                break
            i += 2 if data[i] == 92 else 1
        if i == z - 1:  # the first and the last brace match
            a, z = a + len(_DISPLAY_STYLE), z - 1
    return _stripped(data, a, z)
