"""Extraction: encodings that pages claim wrongly, main text, and pages that cannot be parsed."""

from __future__ import annotations

import time

import ftfy
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import CORE, PAYLOAD, documents
from curate.extract.extraction import Extract, full_text, main_text
from curate.text.decoding import decode

PAGE = (
    "<html><body><nav><a href=/>Home</a><a href=/about>About us</a></nav><main><h1>Mills</h1>"
    "<p>The river runs past the old mill. Nobody works there any more.</p>"
    "<p>In spring the wheel turns all the same.</p><script>var x = 1;</script></main>"
    "<footer>All rights reserved</footer></body></html>"
)


def extracted(*pages: tuple[bytes, str | None, str | None], **settings: object):
    docs = documents(
        {
            "payload": [p for p, _, _ in pages],
            "mime": [m for _, m, _ in pages],
            "charset": [c for _, _, c in pages],
        },
        (*CORE, *PAYLOAD),
    )
    step = Extract(**settings)
    return step.apply(docs.within("extract"))


def reasons(docs: object) -> list[tuple[str, int]]:
    return [(d.rule, int(r)) for d in docs.drops for r in d.rows]  # type: ignore[attr-defined]


def test_main_text_leaves_menus_footers_and_scripts_out() -> None:
    text = main_text(PAGE)
    assert "old mill" in text and "wheel turns" in text
    for noise in ("Home", "rights reserved", "var x"):
        assert noise not in text
    assert "Home" in full_text(PAGE) and "var x" not in full_text(PAGE)


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("shift_jis", "日本語のテキストです。これは長い文章です。"),
        ("gb18030", "这是一个中文文本，用于测试编码检测。"),
        ("cp874", "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ"),
        ("koi8-r", "Это русский текст для проверки кодировки страницы"),
        ("windows-1252", "Größe und Übermut tun selten gut – „sagt man“"),
        ("utf-8", "naïve café ไทย 中文"),
        ("utf-16-le", "\ufeffHello there"),
    ],
)
@pytest.mark.parametrize("declared", ["right", None, "no-such-charset", "utf-8"])
def test_text_is_decoded_whatever_the_header_claims(
    charset: str, text: str, declared: str | None
) -> None:
    claim = charset if declared == "right" else declared
    assert decode(text.encode(charset), claim).text == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        *((name, "ф") for name in ("ISO-8859-5", "iso_8859-5", "Iso8859-5", "CYRILLIC")),
        *((name, "δ") for name in ("ISO-8859-7", "greek8", "ELOT_928")),
        *((name, "ä") for name in ("Latin1", "US-ASCII", "Windows-1252", "x-cp1252", "nothing")),
    ],
)
def test_a_charset_is_known_by_any_of_its_names(charset: str, text: str) -> None:
    """By those of the Encoding Standard, in any case; the page is too short to tell by itself."""
    assert decode(b"\xe4", charset)[0] == text


def test_a_meta_tag_counts_where_the_header_is_silent() -> None:
    page = '<html><head><meta charset="iso-8859-2"></head><body>Žluťoučký kůň</body></html>'
    assert "Žluťoučký kůň" in decode(page.encode("iso-8859-2"))[0]


@given(st.binary(max_size=300), st.sampled_from([None, "utf-8", "shift_jis", "utf-16", "x"]))
def test_decoding_never_fails_and_gives_storable_text(data: bytes, charset: str | None) -> None:
    decode(data, charset)[0].encode("utf-8")


def test_replaced_characters_are_counted_and_may_be_too_many() -> None:
    pages = [("größe " * 9).encode() + b"\xff" * n for n in (0, 1, 3)]
    docs = extracted(*((page, "text/html", "utf-8") for page in pages), max_replaced=1)
    assert docs.table["extract.replaced"].to_pylist() == [0, 1, 3]
    assert reasons(docs) == [("many_replaced", 2)]
    assert not extracted((pages[2], "text/html", None)).drops


@pytest.mark.parametrize("extractor", ["blocks", "text"])
def test_c1_controls_in_utf_8_are_windows_1252_so_that_ftfy_can_mend_them(extractor: str) -> None:
    spoilt = "It’s the page’s fault.".encode().decode("latin-1")
    page = f"<body><p>{spoilt} {'And so on. ' * 40}</p>".encode()
    text = extracted((page, "text/html", None), extractor=extractor).text[0].as_py()
    assert ftfy.fix_encoding(text).startswith("It’s the page’s fault.")


def test_pages_in_what_no_browser_decodes_go_by_the_name_of_their_label() -> None:
    korean = b"<p>\x1b$)C\x0e0!3*\x0f"
    meta = b"<meta charset=hz-gb-2312><p>~{VPND~}"
    docs = extracted(
        (korean, "text/html", "ISO-2022-KR"), (meta, "text/html", None), (PAGE.encode(), None, None)
    )
    assert reasons(docs) == [("undecodable_hz-gb-2312", 1), ("undecodable_iso-2022-kr", 0)]
    assert docs.table["extract.encoding"].to_pylist() == [None, None, "utf-8"]


def test_an_xml_page_is_read_as_its_declaration_says() -> None:
    page = "<?xml version='1.0' encoding='koi8-r'?><p>Тихо.</p>".encode("koi8-r")
    for mime in ("application/xhtml+xml", "application/xml", "text/xml", None):
        assert "Тихо" in extracted((page, mime, None), extractor="text").text[0].as_py()


def test_the_detector_is_part_of_what_decides_the_texts() -> None:
    assert Extract().identity().contents["detector"]


def test_every_row_gets_text_or_a_reason() -> None:
    docs = extracted(
        (PAGE.encode(), "text/html", None),
        (b"plain words, not markup: a < b", "text/plain", None),
        (b"", "text/html", None),
        (b"<html></html>", "text/html", None),
        (b"x" * 200, "text/html", None),
        ((b"The mill turns by the river when the water is high. " * 3)[:150], "text/html", None),
        max_html_bytes=150,
    )
    assert not [rule for rule, row in reasons(docs) if row == 5], "the limit itself is read"
    assert ("html_too_large", 0) in reasons(docs) and ("html_too_large", 4) in reasons(docs)
    assert ("no_text", 2) in reasons(docs) and ("no_text", 3) in reasons(docs)
    assert docs.text[1].as_py() == "plain words, not markup: a < b"
    assert "payload" not in docs.table.column_names
    large = next(d for d in docs.drops if d.rule == "html_too_large")
    assert list(large.values) == [len(PAGE), 200] and large.thresholds[0] == 150


def test_a_page_nested_to_stall_the_parser_is_rejected_by_depth_and_quickly() -> None:
    deep = b"<html><body>" + b"<DIV>x" * 100_000
    hidden = b"<html><body>" + b"<div><!-- </div> -->" * 20_000
    wide = b"<html><body>" + b"<div><p>It is only wide.</p></div>" * 3000
    began = time.process_time()
    pages = ((page, "text/html", None) for page in (deep, hidden, wide))
    docs = extracted(*pages, extractor="resiliparse")
    assert time.process_time() - began < 30
    assert reasons(docs) == [("nested_too_deep", 0), ("nested_too_deep", 1)]
    assert docs.drops[0].thresholds[0] == 512 and docs.drops[0].values[0] > 100_000


def test_rows_that_are_text_already_pass_unchanged() -> None:
    docs = documents({"text": ["kept as it is\n"], "payload": [None]}, (*CORE, *PAYLOAD))
    out = Extract().apply(docs.within("extract"))
    assert out.text.to_pylist() == ["kept as it is\n"] and not out.drops


def test_a_parser_that_fails_rejects_its_page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from curate.extract import extraction as module

    def parse(html: str) -> str:
        if "bad" in html:
            raise ValueError("cannot parse")
        return html

    monkeypatch.setitem(module.EXTRACTORS, "text", parse)
    docs = extracted((b"bad", "text/html", None), (b"good", "text/html", None), extractor="text")
    assert reasons(docs) == [("unparsable", 0)]
    assert docs.drops[0].details == ("ValueError: cannot parse",)


def test_the_empty_batch_keeps_the_schema() -> None:
    docs = documents({}, (*CORE, *PAYLOAD))
    out = Extract().apply(docs.within("extract"))
    assert out.table.schema.field("extract.encoding").type == pa.string()
    assert len(out) == 0
