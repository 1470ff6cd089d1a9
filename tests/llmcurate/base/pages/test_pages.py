"""Pages: every value is escaped, differences are marked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.pages import html
from llmcurate.base.pages.html import LONG_NAME, breakable, percent, plain, quote, render


@given(st.text(max_size=50))
def test_shown_text_is_escaped_and_has_no_controls(text: str) -> None:
    markup = quote(text).removeprefix("<pre dir=auto>").removesuffix("</pre>")
    assert not set(markup) & set("<>\"'\0\x1b\u202e\u2066\ufeff\u2028\x85\r")
    markup.encode("utf-8")


def test_long_names_may_break_after_punctuation_and_all_names_are_escaped() -> None:
    short, long = "<a>." + "b" * (LONG_NAME - 5), "<a>." + "b" * (LONG_NAME - 4)
    assert breakable(short) == f"&lt;a&gt;.{'b' * 15}"
    assert breakable(long) == f"&lt;a&gt;.<wbr>{'b' * 16}"
    assert breakable("a_b/c:d=e-f.g--hhhhhh.") == (
        "a_<wbr>b/<wbr>c:<wbr>d=<wbr>e-<wbr>f.<wbr>g--<wbr>hhhhhh."
    )


def test_lone_surrogates_and_long_texts_are_cut_and_mended() -> None:
    assert plain("a\ud800b") == "a\ufffdb"
    assert plain("x" * 500, 10) == "x" * 10 + "\u2026"
    assert plain("plain text\n") == "plain text\n"


def test_shares_do_not_break_at_their_space() -> None:
    assert percent(1, 10_000) == "<\u00a00.1\u00a0%" and percent(0, 0) == "0.0\u00a0%"
    assert percent(1, 1) == "100.0\u00a0%" and percent(None) == "-"


def test_every_value_that_a_template_prints_is_escaped_and_made_visible() -> None:
    page = render("report_failed.html", record={"recipe": "<b>\x1b", "notices": ["\u202e</p>"]})
    assert "<b>" not in page and "&lt;b&gt;\u241b" in page and "[U+202E]&lt;/p&gt;" in page
    page = render("browse/message.html", message="'\">")
    assert "&#39;&#34;&gt;" in page


@pytest.mark.parametrize(
    ("filter_name", "value", "shown"),
    [
        ("count", 1234, "1,234"),
        ("counted('page')", 1, "1 page"),
        ("number", 0.12345, "0.1235"),
        ("bytes", 12_345, "12.3 kB"),
        ("scaled", 950, "950"),
        ("short", 1200, "1.2k"),
        ("zip('ab')|list", [1, 2], "[(1, &#39;a&#39;), (2, &#39;b&#39;)]"),
    ],
)
def test_numbers_of_a_page_are_written_by_their_filter(filter_name, value, shown) -> None:
    template = html._environment().from_string(f"{{{{ value|{filter_name} }}}}")
    assert template.render(value=value) == shown


def test_checkouts_with_other_templates_do_not_compile_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "page.html").write_text(f"{folder.name} {{{{ word }}}}")
    compiled = []
    for folder in (first, second, first, second):
        html._environment.cache_clear()
        monkeypatch.setattr(html, "FOLDER", folder)
        assert render("page.html", word="<b>") == f"{folder.name} &lt;b&gt;"
        files = (tmp_path / "cache" / "templates").iterdir()
        compiled.append({path: path.stat().st_mtime_ns for path in files})
    assert [len(files) for files in compiled] == [1, 2, 2, 2]
    assert compiled[1] == compiled[3], "what one compiled, the other leaves as it is"
    html._environment.cache_clear()


def test_pages_are_made_where_no_cache_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "file"))
    html._environment.cache_clear()
    assert "&lt;b&gt;" in render("browse/message.html", message="<b>")
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    html._environment.cache_clear()
    assert "&lt;b&gt;" in render("browse/message.html", message="<b>")
    assert list((tmp_path / "cache" / "templates").iterdir())
    html._environment.cache_clear()
