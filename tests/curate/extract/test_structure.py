"""Formulas, code and data tables keep their form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from curate.extract.blocks import look_at, main_texts, tables
from curate.extract.links import link_table
from curate.extract.net import fitted
from curate.extract.render import Writing, render
from curate.extract.scan import count_tags, scan
from llmcurate.base.kernels import njit


def blocks(page: str) -> list[str]:
    return look_at(page).texts


def written(page: str, markdown: bool = True) -> str:
    """All blocks of a page, whatever the model thinks of them."""
    net = fitted()
    net = net._replace(out=np.zeros_like(net.out), out_bias=np.full(1, 30, np.float32))
    writing = Writing("markdown" if markdown else "text")
    text: str = main_texts(pa.array([page], pa.large_string()), writing, net).text[0].as_py()
    return text


def math(source: str, attributes: str = "") -> str:
    return (
        f"<math {attributes}><semantics><mrow><mi>x</mi><mn>2</mn></mrow>"
        f'<annotation encoding="application/x-tex">{source}</annotation></semantics></math>'
    )


STYLED = "{\\displaystyle x}"
FORMULAS: dict[str, tuple[str, list[str]]] = {
    "MathML with its source": (f"<p>Let {math('x^2')}, so", ["Let $x^2$, so"]),
    "references and white space": (f"<p>{math(' a &lt;&#10; b ')}", ["$a < b$"]),
    "displayed MathML": (f"<p>so {math('x', 'display=block')} is", ["so\n$$x$$\nis"]),
    "MathML without its source": ("<p><math><mi>x</mi><mo>=</mo><mn>1</mn></math> is", ["x=1 is"]),
    "an annotation that is no TeX": (
        "<p><math><mi>x</mi><annotation encoding=StarMath>size 12 x</annotation></math>", ["x"],
    ),
    "MathML that does not end": (f"<p>a <math><mi>x</mi> b<p>c {math('y')}", ["a x b", "c $y$"]),
    "MediaWiki's source and picture": (
        f"<p><span style='display:none'>{math(STYLED)}</span><img alt='{STYLED}' class='"
        "mwe-math-fallback-image-inline mw-invert'> is", ["$x$ is"],
    ),
    "MediaWiki's displayed picture": (
        "<p>so<img alt='{\\displaystyle {a}+{b}}' class=mwe-math-fallback-image-display>",
        ["so\n$${a}+{b}$$"],
    ),
    "braces that do not enclose all": (
        "<p>" + math("{\\displaystyle a}+{b}"), ["${\\displaystyle a}+{b}$"],
    ),
    "equal formulas with text between": (f"<p>{math('x')}, {math('x')}", ["$x$, $x$"]),
    "equal formulas of two cells": (
        f"<table><tr><td>{math('x')}<td>{math('x')}</table>", ["$x$", "$x$"],
    ),
    "KaTeX": (
        f"<p>a <span class=katex><span class=katex-mathml>{math('x^2')}</span><span "
        "class='katex-html' aria-hidden=true><span>x</span><span>2</span></span></span> b",
        ["a $x^2$ b"],
    ),
    "MathJax": (
        "<p>a <span class=MathJax_Preview>x2</span><span class=MathJax id=MathJax-Element-1-Frame>"
        "<nobr>x2</nobr></span><script type='math/tex'>x<y</script> b", ["a $x<y$ b"],
    ),
    "MathJax, displayed, as kramdown writes it": (
        "<p>a<script type='math/tex; mode=display'>% <![CDATA[\nx & y %]]></script>b",
        ["a\n$$x & y$$\nb"],
    ),
    "a picture by a service": (
        "<p><img src='https://s0.wp.com/latex.php?latex=x' alt='$x&#92;le 1$'>", ["$x\\le 1$"],
    ),
    "other pictures": ("<p>a<img src=/latex-gloves.jpg alt=Gloves class=latex-gloves>", ["a"]),
    "a formula in what is not read": (f"<p>a<button>{math('x')}</button>", ["a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_written_once_as_latex(name: str) -> None:
    page, expected = FORMULAS[name]
    assert blocks(page) == expected


def test_a_hidden_formula_source_does_not_hide_its_paragraph() -> None:
    page = f"<p><span hidden>{math('x')}</span> is a number.</p>"
    shown = f"<p>{math('x')} is a number.</p>"
    assert look_at(page).texts == look_at(shown).texts
    assert (look_at(page).rows == look_at(shown).rows).all()


CODE: dict[str, tuple[str, str]] = {
    "spans of colours": (
        "<pre><span class=k>def</span> f():\n    <b>return</b> 1\n</pre>",
        "def f():\n    return 1",
    ),
    "an element a line": (
        "<pre><div class=line>a {</div><div class=line>  b</div><div class=line>}</div></pre>",
        "a {\n  b\n}",
    ),
    "line breaks between elements too": (
        "<pre><div class=line>a {</div>\n<div class=line>  b</div>\n</pre>",
        "a {\n  b",
    ),
    "elements that end in a br": (
        "<pre><div><i>a</i><br></div><div><br></div><div>  b<br></div></pre>",
        "a\n\n  b",
    ),
    "items": ("<pre><ol class=linenums><li>a<li>  b</ol></pre>", "a\n  b"),
    "numbers before lines": (
        "<pre><span class=lineno>1</span>a\n<span class=lineno>2</span>  b\n</pre>",
        "a\n  b",
    ),
    "a column of numbers": (
        "<table><tr><td class=gutter><pre>1\n2</pre></td><td class=code><pre>a\n  b</pre></table>",
        "a\n  b",
    ),
    "a column of numbers within": (
        "<pre><code><table><tr><td class='rouge-gutter gl'><pre class=lineno>1\n2\n</pre></td>"
        "<td><pre>a\n\n  b</pre></td></tr></table></code></pre>",
        "a\n\n  b",
    ),
    "a row a line": (
        "<pre><table><tr><td class=hljs-ln-numbers>1<td>a</tr><tr><td class=hljs-ln-numbers>2"
        "<td>  b</tr></table></pre>",
        "a\n  b",
    ),
    "code with line breaks": ("<code>\n  a {<br>\n&nbsp;&nbsp;b<br>}</code>", "a {\n  b\n}"),
    "headings in code": ("<pre>a\n<h2>b</h2>  c</pre>", "a\nb\n  c"),
    "a message that is hidden": ("<pre>a<div hidden>Copied!</div>\n  b</pre>", "a\n  b"),
}


@pytest.mark.parametrize("name", CODE)
def test_code_is_one_block_with_its_lines_and_indentation(name: str) -> None:
    page, code = CODE[name]
    page = f"<p>See:</p>{page}<p>and run it.</p>"
    assert written(page, markdown=False) == f"See:\n\n{code}\n\nand run it."
    assert written(page) == f"See:\n\n```\n{code}\n```\n\nand run it."


def test_elements_of_equal_classes_outside_of_code_are_text() -> None:
    page = "<div class=gutter>a</div><div class=line>b</div><p>see <code>c</code> there"
    assert blocks(page) == ["a", "b", "see c there"]


def test_an_unclosed_code_block_ends_with_its_parent_element() -> None:
    assert blocks("<div><pre>a\n<div>b</div></div><p>c</p>") == ["a\nb", "c"]


HOSTILE = {
    "math that does not end": "<math>x" * 100_000,
    "annotations that do not end": "<math>application/x-tex" * 50_000,
    "formulas": "<p>" + math("&nGt;", "display=block") * 20_000,
    "a formula of braces": "<p>" + math("{\\displaystyle " + "{" * 500_000 + "}"),
    "formulas in deep elements": "<b>" * 600 + ("<p>" + "<img class=tex alt=x>") * 20_000,
    "pictures of long addresses": f"<img alt=x src='{'codecogs.co' * 100_000}'>",
    "code that does not end": "<code><br>x" * 100_000,
    "preformatted text that does not end": "<pre><div>x<td>y<li>" * 50_000,
    "numbers of lines": "<pre>" + f"<i class='{'ln0 ' * 100_000}'>x",
    "code in cells": "<table>" + "<tr><td>x<td><pre>\n\n\ny" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_output_for_a_hostile_page_is_bounded_by_its_size(name: str) -> None:
    page = HOSTILE[name]
    assert sum(len(t.encode()) for t in blocks(page)) <= len(page)
    assert len(written(page).encode()) <= 64 * len(page)


TABLE = (
    "<table><tr><th>Name<th>Height<tr><td>Old mill, built of oak<td>12 m<td>1"
    "<tr><td>Tower<td>30 m, with its roof<td>2</table>"
)


@njit(cache=True, nogil=True)
def rendered(text, rows, nodes, keep):  # type: ignore[no-untyped-def]
    return render(text, rows, nodes, keep, False, 0, text, rows)


def kept(choices: list[int]) -> str:
    """TABLE, of whose cells the network would keep some."""
    data = np.frombuffer(TABLE.encode(), np.uint8).copy()
    tags = count_tags(data, 0, len(data))
    text, rows, nodes, _ = scan(data, 0, len(data), tags, tables(), link_table(0))
    keep = np.zeros(len(rows), np.bool_)
    keep[choices] = True
    return bytes(rendered(text, rows, nodes, keep)).decode()


def test_a_row_stays_if_most_of_its_text_would_and_headings_with_any_row() -> None:
    head, first, second = "Name | Height\n", "Old mill, built of oak | 12 m | 1", "Tower | 30 m"
    assert kept([2]) == head + first
    assert kept([2, 3, 6]).startswith(head + first + "\n" + second)
    assert kept([3, 4, 5]) == kept([0, 1]) == ""
