"""Which encoding bytes are in: marks, declarations, what the bytes show, and detection."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from curate.text.decoding import (
    Undecodable,
    declared_in,
    decode,
    encoding_of_file,
    utf_8_of,
    utf_16_in,
)
from curate.text.encodings import encoding_of

RUSSIAN = "Осенью в деревне становится тихо, и только ветер шумит в пустых полях."
JAPANESE = "情報を集めるということは、たいへん時間のかかる仕事である。"
HUNGARIAN = "Az őszi erdőben hűvös szél fújt, és a fák között egy öreg őr űzte a gyerekeket haza."
LITHUANIAN = "Mūsų šalyje žmonės ilgą žiemą mėgsta šiltą arbatą, į kurią įdeda žolelių."


def page(text: str, head: str = "") -> str:
    return f"<!DOCTYPE html><html><head>{head}<title>x</title></head><body><p>{text}</p>"


@pytest.mark.parametrize("label", [None, "utf-8", "iso-8859-1", "utf-16"])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "iso2022_jp"])
def test_codes_that_are_valid_utf_8_too_are_seen_whatever_is_declared(
    codec: str, label: str | None
) -> None:
    text = page(JAPANESE)
    assert decode(text.encode(codec), label).text == text


def test_a_byte_order_mark_comes_before_the_header() -> None:
    assert decode(b"\xef\xbb\xbfab\xff", "koi8-r") == ("ab\ufffd", "utf-8", 1)
    assert decode("\ufeffDa".encode("utf-16-be"), "utf-8") == ("Da", "utf-16be", 0)


def test_the_header_comes_before_the_meta_tag() -> None:
    data = page(RUSSIAN, "<meta charset=koi8-r>").encode("windows-1251")
    assert RUSSIAN in decode(data, "windows-1251").text
    assert decode(data, None).encoding == "koi8-r" and decode(data, "none").encoding == "koi8-r"


@pytest.mark.parametrize(
    ("label", "head"),
    [("utf-8", "<meta charset=gbk>"), (None, "<meta charset=gb2312>"), ("iso-8859-1", "")],
)
@pytest.mark.parametrize("bad", [b"\xe9", b"\xed\xa0\xbd\xed\xb8\x80"])
def test_utf_8_with_one_bad_place_is_utf_8_whatever_is_declared(
    label: str | None, head: str, bad: bytes
) -> None:
    data = page("naïve – one", head).encode() + bad
    decoded = decode(data, label)
    assert decoded.encoding == "utf-8" and "naïve – one" in decoded.text
    assert decoded.replaced == len(bad)


@pytest.mark.parametrize("label", ["utf-8", None])
def test_another_encoding_is_detected_even_if_utf_8_is_declared(
    label: str | None,
) -> None:
    for text, codec in ((RUSSIAN, "windows-1251"), (JAPANESE, "euc-jp"), ("café", "latin-1")):
        assert decode(page(text).encode(codec), label).text == page(text)


def test_a_page_cut_off_inside_a_character_is_utf_8_still() -> None:
    for rest in (b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98"):
        assert decode("<p>größe".encode() + rest, "koi8-r").encoding == "utf-8"
        assert decode(b"<p>size" + rest, "utf-8").encoding == "utf-8"
    assert decode(b"<p>caf\xe9") == ("<p>café", "windows-1252", 0)


@pytest.mark.parametrize(
    ("label", "data"),
    [
        ("iso-2022-kr", b"\x1b$)C\x0e0!3*\x0f"),
        ("HZ-GB-2312", b"~{VPND~}"),
        ("iso-2022-cn", b"\x1b$)A\x0eVPND\x0f"),
    ],
)
def test_what_no_browser_decodes_is_refused_by_its_label(label: str, data: bytes) -> None:
    with pytest.raises(Undecodable, match=label.lower()):
        decode(data, label)
    with pytest.raises(Undecodable):
        decode(f"<meta charset={label}>".encode() + data)
    assert decode(b"plain", label).text == "plain" and decode(data).encoding == "utf-8"


@pytest.mark.parametrize(
    ("head", "label"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<META\tCharset = 'KOI8-R' >", "koi8-r"),
        (b"<meta/charset=koi8-r>", "koi8-r"),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=nothing><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=koi8-r charset=big5>", "koi8-r"),
        (b"<metacharset=koi8-r>", None),
        (b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r"),
        (b"<meta content='charset = \"koi8-r\"' http-equiv=content-type>", "koi8-r"),
        (b"<meta content='text/html; charset=koi8-r'>", None),
        (b"<meta http-equiv=content-type content='charset=\"koi8-r'>", None),
        (b"<meta http-equiv=content-type content='charset=koi8-r' charset=big5>", "big5"),
        (b"<!-- <meta charset=big5> --><meta charset=koi8-r>", "koi8-r"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<p title='<meta charset=big5>'><meta charset=koi8-r>", "koi8-r"),
        (b"</x title='>'><meta charset=koi8-r>", "koi8-r"),
        (b"<?x <meta charset=big5><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=koi8-r", None),
        (b"<meta charset='koi8-r>", None),
        (b"<?xml version='1.0' encoding='koi8-r'?>", "koi8-r"),
        (b"<?xml encoding = 'utf-16'?>", "utf-8"),
        (b" <?xml encoding='koi8-r'?>", None),
        (b"<?xml encoding='big5'?><meta charset=koi8-r>", "koi8-r"),
    ],
)
def test_declarations_are_found_as_the_html_standard_says(head: bytes, label: str | None) -> None:
    assert encoding_of(declared_in(head)) == label


def test_a_declaration_counts_as_far_as_the_head_goes() -> None:
    """As in Chromium: the head to its end, the body within 1,024 bytes, scripts not beyond them."""
    far, meta = b"<!--" + b"x" * 9000 + b"-->", b"<meta charset=koi8-r>"
    assert declared_in(b"<html><head>" + far + b"<style>p > a</style>" + meta) == "koi8-r"
    assert declared_in(b"<body><p>" + meta) == "koi8-r"
    assert declared_in(far + b"<body>" + meta) is None
    assert declared_in(far + b"<script>'" + meta + b"'</script>") is None


@pytest.mark.skipif("HTML5LIB_TESTS" not in os.environ, reason="HTML5LIB_TESTS is not set")
def test_html5lib_agrees_on_declarations() -> None:
    """A checkout of github.com/html5lib/html5lib-tests."""
    for file in sorted(Path(os.environ["HTML5LIB_TESTS"], "encoding").glob("*.dat")):
        for case in re.split(rb"(?:^|\n)#data\n", file.read_bytes())[1:]:
            data, _, label = case.partition(b"\n#encoding\n")
            wanted = encoding_of(label.split(b"\n")[0].decode("ascii"))
            if not data.startswith(b"\xef\xbb\xbf"):
                assert (encoding_of(declared_in(data)) or "windows-1252") == wanted, data


@pytest.mark.parametrize("lang", ["", "hu"])
@pytest.mark.parametrize("codec", ["windows-1250", "iso-8859-2"])
def test_hungarian_which_the_detector_misses_is_found(codec: str, lang: str) -> None:
    text = f"<html lang={lang or 'en'}><p>{HUNGARIAN} {HUNGARIAN}"
    assert decode(text.encode(codec)).text == text


def test_lithuanian_is_found() -> None:
    text = f"<p>{LITHUANIAN}"
    assert decode(text.encode("windows-1257")).text == text


def test_the_languages_of_windows_1252_are_not_taken_for_others() -> None:
    for text in ("Dû à l’été, où ça se gâte", "não põe à mão o avô", "El niño comió aquí según él"):
        for tag in ("<p>", "<html lang=en><p>", "<html lang='de'><p>"):
            assert decode(f"{tag}{text}".encode("windows-1252"))[0] == tag + text


@pytest.mark.parametrize("url", ["http://EXAMPLE.RU/", "http://пример.рф/", "http://[1", "x", None])
def test_a_page_decodes_whatever_its_url_is(url: str | None) -> None:
    data = page(RUSSIAN).encode("windows-1251")
    assert decode(data, url=url).encoding == "windows-1251"


def test_a_few_nuls_make_no_utf_16() -> None:
    assert utf_16_in(b"a\0b" * 2 + b"text " * 100) is None
    assert decode(b"text\0text") == ("text\0text", "utf-8", 0)
    assert utf_16_in(bytes(range(256)) * 4) is None


def test_euc_jp_with_letters_of_jis_x_0213_is_read() -> None:
    assert decode("﨑山 ①".encode("euc_jis_2004"), "euc-jp") == ("﨑山 ①", "euc-jp", 0)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "windows-1251", "koi8-r"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_file_in_pieces_becomes_utf_8(codec: str, size: int) -> None:
    text = "id,text\n" + "".join(f"{i},{RUSSIAN}\n" for i in range(60)) + "end"
    data = text.encode(codec)
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert b"".join(utf_8_of(chunks, encoding_of_file(data))).decode("utf-8-sig") == text


def test_a_file_of_damaged_utf_8_is_utf_8() -> None:
    assert encoding_of_file(("größe\n" * 9).encode() + b"\xff\n") == "utf-8"
    assert encoding_of_file(b"text \xe2\x82") == encoding_of_file(b"") == "utf-8"
