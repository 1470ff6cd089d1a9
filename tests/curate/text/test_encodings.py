"""Labels and decoders: as the Encoding Standard has them, and as Chromium answers."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from curate.text.encodings import decode_as, encoding_of
from tests.curate.text.encoding_bytes import damaged, whole

CHROMIUM = json.loads(Path(__file__).with_name("encodings.json").read_text(encoding="utf-8"))


@cache
def inputs() -> list[bytes]:
    return [whole(), *damaged()]


@pytest.mark.parametrize("encoding", CHROMIUM["digests"])
def test_every_decoder_answers_as_chromium_for_pairs_and_damage(encoding: str) -> None:
    """Recorded by scripts/encoding_digests.py."""
    text = "\n".join(decode_as(data, encoding).text for data in inputs())
    assert sha256(text.encode()).hexdigest() == CHROMIUM["digests"][encoding]


@pytest.mark.parametrize("encoding", ["big5", "euc-jp", "euc-kr", "gb18030", "shift_jis"])
def test_codecs_of_python_answer_only_where_they_are_right(encoding: str) -> None:
    """Together the characters hold errors, which the tables decode."""
    pairs = [bytes((a, b)) for a in range(0x80, 0x100) for b in range(0x21, 0x100)]
    long = [b"\x8f" + pair for pair in pairs if pair[0] > 0xA0 and pair[1] > 0xA0]
    long += [bytes((0x84, 0x31, c, d)) for c in range(0x81, 0xFF) for d in range(0x30, 0x3A)]
    characters = [b"\x80", *pairs, *long]
    together = decode_as(b"\n".join([*characters, b"\xff"]), encoding).text.split("\n")
    each = [decode_as(c + b"\n", encoding).text.removesuffix("\n") for c in characters]
    assert each == together[:-1]


def test_every_label_means_the_encoding_that_chromium_says() -> None:
    names = CHROMIUM["names"]
    assert {label: encoding_of(label) for label in names} == names and len(names) == 228


def test_a_label_is_known_in_any_case_with_space_around_and_no_other_is() -> None:
    assert encoding_of("\t Latin1\n") == "windows-1252"
    assert [encoding_of(label) for label in (None, "", "latin 1", "utf-7", "cp437")] == [None] * 5


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"\x88\x62\x88\xa5", "big5", "Ê̄ê̌"),
        (b"\x8f\xb2\x0d\xb7\xd8", "euc-jp", "\ufffd\r詣"),
        (b"\x1b$\xeb", "iso-2022-jp", "\ufffd$\ufffd"),
        (b"\x1b$B\x1b$", "iso-2022-jp", "\ufffd\ufffd"),
    ],
)
def test_where_chromium_has_faults_the_standard_holds(
    data: bytes, encoding: str, text: str
) -> None:
    """What Chromium 150 reads otherwise, by the standard's algorithms."""
    assert decode_as(data, encoding).text == text


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        ("①髙﨑～".encode("cp932"), "shift_jis", "①髙﨑～"),
        ("똠방각하 펲".encode("cp949"), "euc-kr", "똠방각하 펲"),
        ("朱镕基𠮷㐀€".encode("gb18030"), "gbk", "朱镕基𠮷㐀€"),
        ("啲嘢係嘅".encode("big5hkscs"), "big5", "啲嘢係嘅"),
        ("“ไทย”".encode("cp874"), "windows-874", "“ไทย”"),
        (b"\x80\xff", "x-user-defined", "\uf780\uf7ff"),
        (b"\x81\x95", "windows-1252", "\x81•"),
    ],
)
def test_letters_beyond_a_codec_of_the_same_name_are_read(
    data: bytes, encoding: str, text: str
) -> None:
    assert decode_as(data, encoding) == (text, encoding, 0)


def test_damage_takes_no_markup_with_it() -> None:
    for encoding in ("shift_jis", "euc-jp", "euc-kr", "big5", "gbk", "gb18030"):
        assert decode_as(b"\x88<p>", encoding) == ("\ufffd<p>", encoding, 1)


def test_replacement_characters_that_the_text_has_itself_are_not_counted() -> None:
    for encoding in ("utf-8", "utf-16le", "utf-16be"):
        data = "one \ufffd, ".encode(encoding)
        assert decode_as(data, encoding).replaced == 0
        assert decode_as(data + b"\xff", encoding) == ("one \ufffd, \ufffd", encoding, 1)
