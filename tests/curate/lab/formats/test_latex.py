"""LaTeX sources: a paper is its main file with inputs and macros, without comments and preamble."""

from __future__ import annotations

import gzip
import re
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.lab.formats.latex import _without_comments, paper_text
from tests.curate.doubling import grows_linearly
from tests.curate.formats.portions import corrupt, events, rows, skipped
from tests.curate.lab.formats.latex_files import MAIN, tar

INPUTS = "Put in place by \\mill % with a comment\n"
TEXT = r"""\begin{abstract}On the mill. 50\% of it.\end{abstract}
\section{One}
Put in place by the mill

\millstone{} is no macro, \frac{1}{2} is, \two{a}{b} stays."""


PAPER = tar({"ms.tex": MAIN.encode(), "parts/one.tex": INPUTS.encode(), "fig.eps": b"%!PS"})


def squeezed(text: str | None) -> list[str]:
    """The lines that have something in them."""
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def test_a_paper_is_its_main_file_with_inputs_and_macros(tmp_path: Path) -> None:
    (tmp_path / "paper.tar.gz").write_bytes(gzip.compress(PAPER))
    (row,) = rows(events(tmp_path / "paper.tar.gz"))
    assert squeezed(row.text) == squeezed(TEXT)


def test_a_tar_of_arxiv_gives_a_document_a_paper(tmp_path: Path) -> None:
    members = {
        "1001/1001.0001.gz": gzip.compress(PAPER),
        "1001/math0001002.gz": gzip.compress(MAIN.encode()),
        "1001/1001.0003.pdf": b"%PDF-1.4",
        "1001/1001.0004.gz": gzip.compress(b"%PDF-1.4 within"),
        "1001/1001.0005.gz": gzip.compress(rb"\section{No document}"),
    }
    (tmp_path / "arXiv_src_1001_001.tar").write_bytes(tar(members))
    found = events(tmp_path / "arXiv_src_1001_001.tar")
    first, second = rows(found)
    assert (first.id, first.url) == ("arxiv:1001.0001", "https://arxiv.org/abs/1001.0001")
    assert second.id == "arxiv:math/0001002" and r"\input{parts/one.tex}" in (second.text or "")
    assert first.date is not None and first.date.year == 2010
    assert skipped(found) == ["latex:.pdf", "latex:no-document", "latex:pdf-or-postscript"]


def test_damage_ends_with_its_paper(tmp_path: Path) -> None:
    bad = bytearray(gzip.compress(PAPER))
    bad[30:40] = b"\xff" * 10
    members = {"1.gz": bytes(bad), "2.gz": gzip.compress(MAIN.encode())}
    (tmp_path / "a.tar").write_bytes(tar(members))
    found = events(tmp_path / "a.tar")
    assert r"\section{One}" in (rows(found)[-1].text or "")
    assert any("'1.gz'" in what for what in corrupt(found))


def test_a_tar_that_is_cut_short_is_named(tmp_path: Path) -> None:
    whole = tar({f"{n}.gz": gzip.compress(MAIN.encode()) for n in range(5)})
    (tmp_path / "a.tar").write_bytes(whole[:3000])
    found = events(tmp_path / "a.tar")
    assert 0 < len(rows(found)) < 5 and corrupt(found)[-1].startswith("tar: ")


def test_a_tar_of_other_things_is_passed_over_in_a_folder(tmp_path: Path) -> None:
    from curate.formats.listing import find_files

    (tmp_path / "backup.tar").write_bytes(tar({"notes.txt": b"nothing"}))
    (tmp_path / "paper.tar").write_bytes(PAPER)
    listed = find_files([str(tmp_path)])
    assert [f.rel for f in listed.files] == ["paper.tar"]
    assert listed.notices[0].endswith("no LaTeX among its first 50 files: unpack it first")


def test_a_header_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    paper = gzip.compress(MAIN.encode())
    whole = 512 + -(-len(paper) // 512) * 512  # the first member, without the end of the tar
    header = info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)
    (tmp_path / "a.tar").write_bytes(tar({"1.gz": paper})[:whole] + header)
    found = events(tmp_path / "a.tar")
    assert len(rows(found)) == 1
    assert corrupt(found)[-1].startswith(f"tar: a header of {4 << 30} bytes")


def test_macros_and_inputs_that_grow_beyond_the_limit_are_rejected(tmp_path: Path) -> None:
    many = r"\newcommand{\a}{" + "x" * 1000 + r"}\begin{document}" + r"\a " * 1000
    (tmp_path / "a.tex").write_text(r"\documentclass{a}" + many)
    (row,) = rows(events(tmp_path / "a.tex", max_payload=100_000))
    assert row.reject is not None and row.reject[0] == "payload_too_large"
    loop = r"\input{a}" * 50
    assert paper_text(loop, {"a": loop}, 1_000_000) is None


def test_an_input_is_found_in_the_tar_alone(tmp_path: Path) -> None:
    (tmp_path / "secret.tex").write_text("secret")
    main = MAIN.replace("parts/one.tex", str(tmp_path / "secret.tex"))
    (tmp_path / "p.tar").write_bytes(tar({"../ms.tex": main.encode()}))
    (row,) = rows(events(tmp_path / "p.tar"))
    assert "secret.tex}" in (row.text or "") and row.text and row.text.count("secret") == 1


@given(st.text("\\%{}[]abc#\n inputdefnewcommand", max_size=300))
def test_no_text_breaks_it(text: str) -> None:
    result = paper_text(text, {"a": text}, 10_000)
    assert result is None or len(result) <= 20_000


@pytest.mark.parametrize("line", [r"a\% b", r"a\\\% b"])
def test_an_escaped_percent_sign_is_no_comment(line: str) -> None:
    assert paper_text(rf"\begin{{document}}{line}", {}, 1000) == line


LITERAL = [
    r"\url{http://a.test/x%20y} and",
    r"\url{http://a.test/{x%20}\%7By} and",
    r"\url|http://a.test/x%20y| and",
    r"\href{http://a.test/?q=1%26b}{the form} of",
    r"\footnote{\path{C:%TEMP%} is} so",
    r"\verb|100%| and \verb*+% x+ so",
    r"\verb !%d! and \Verb#%s# so",
    r"\lstinline|printf(\"%d\")| so",
    r"\lstinline[language=C]{a % b} so",
    r"\mintinline[breaklines]{c}{a % {b}} so",
    *(f"\\begin{{{name}}}\nx % y\n% z\n\\end{{{name}}} so" for name in (
        "verbatim", "verbatim*", "Verbatim", "BVerbatim", "lstlisting", "minted", "alltt"
    )),
]  # fmt: skip


@pytest.mark.parametrize("text", LITERAL)
def test_a_percent_sign_in_what_tex_reads_literally_is_no_comment(text: str) -> None:
    assert paper_text(rf"\begin{{document}}{text} % gone", {}, 1000) == text


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a \\\\% gone\nb", "a \\\\\nb"),
        ("a % \\begin{verbatim}\nb % c\n\\end{verbatim}", "a \nb \n\\end{verbatim}"),
        ("\\url{a % not closed\n\nb % gone}", "\\url{a\n\nb"),
        ("\\href{a%20b}{the % gone\nform}", "\\href{a%20b}{the \nform}"),
        ("\\verb|a % not closed\nb| % gone", "\\verb|a \nb|"),
        ("\\verbose|% gone\n|", "\\verbose|\n|"),
        ("\\path (0,0) -- (1,1); % gone (", "\\path (0,0) -- (1,1);"),
        ("\\begin{verbatim} % never closed", "\\begin{verbatim}"),
        ("a\n\\begin{comment}\nb % \\end{comment}\nc", "a\nc"),
        ("a\n  % a line\nb", "a\nb"),
    ],
)
def test_an_unescaped_percent_sign_begins_a_comment(text: str, without: str) -> None:
    assert paper_text(rf"\begin{{document}}{text}", {}, 1000) == without


@given(st.text("\\\\%{}a \n", max_size=60))
def test_without_literals_comments_are_what_redpajama_takes(text: str) -> None:
    lines = re.sub(r"^[ \t]*%.*\n?", "", text, flags=re.M)
    assert _without_comments(text) == re.sub(r"(?<!\\)((?:\\\\)*)%.*", r"\1", lines)


@pytest.mark.parametrize(
    "unit",
    [
        r"\url{",
        r"\verb|",
        r"\begin{verbatim}",
        r"\begin{comment}%",
        r"\lstinline[",
        "%\n",
        r"\href{{}",
    ],
)
def test_unclosed_latex_takes_linear_time(unit: str) -> None:
    assert grows_linearly(_without_comments, lambda n: unit * (n // len(unit)), 100_000)


def test_a_paper_made_to_be_slow_is_not() -> None:
    """Definitions that nothing closes, and blanks, cost no more than their number."""
    for text in ("\\def\\a{" * 20_000, "\\def\\a{b} " * 20_000, " " * 200_000):
        began = time.process_time()
        paper_text(text, {}, 1 << 20)
        assert time.process_time() - began < 5
