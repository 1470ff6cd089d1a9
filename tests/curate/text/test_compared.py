"""Texts as they are compared: Unicode's own property, and the same on bytes as in Python."""

from __future__ import annotations

import subprocess
import unicodedata
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.text.compared import IGNORABLE, casefold_of, in_form, nfkc_casefold, texts_in_form

PERL = """use Unicode::UCD qw(prop_invmap);
print Unicode::UCD::UnicodeVersion(), "\\n";
my ($first, $map) = prop_invmap("NFKC_Casefold");
for my $i (0 .. $#$first - 1) {
  my $to = $map->[$i];
  next if !ref($to) && "$to" eq "0";
  for my $c ($first->[$i] .. $first->[$i + 1] - 1) {
    my $by = $c - $first->[$i];
    print "$c ", ref($to) ? join(" ", @$to) : $to eq "" ? "" : $to + $by, "\\n";
  }
}"""
HARD = "aAéE\u0301\u0323\u0345ᾳ가각\u11a8ß\xad\u200bＡｶﾞﬁςΣẛ\u0f71\u0f72 \n"
nfc = partial(unicodedata.normalize, "NFC")
texts = st.text() | st.text(HARD, max_size=9)


def test_casefolding_is_the_property_that_perl_has_of_unicode() -> None:
    try:
        done = subprocess.run(["perl", "-e", PERL], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no perl with Unicode::UCD")
    version, *lines = done.stdout.splitlines()
    if version != unicodedata.unidata_version:
        pytest.skip(f"perl has Unicode {version}, Python {unicodedata.unidata_version}")
    rows = [list(map(int, line.split())) for line in lines]
    expected = {code: "".join(map(chr, to)) for code, *to in rows}
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        assert casefold_of(chr(code)) == expected.get(code, chr(code))


@given(texts)
def test_a_text_is_folded_by_character_and_put_in_nfc(text: str) -> None:
    assert nfkc_casefold(text) == nfc("".join(map(casefold_of, text)))


@given(texts)
def test_a_casefolded_text_stays_as_it_is(text: str) -> None:
    folded = nfkc_casefold(text)
    assert nfkc_casefold(folded) == folded == nfc(folded)
    assert not IGNORABLE.search(folded)


@given(st.lists(texts | st.none()))
@pytest.mark.parametrize(("form", "make"), [("nfc", nfc), ("nfkc_cf", nfkc_casefold)])
def test_texts_are_in_the_form_on_bytes_too(form, make, values) -> None:
    array = pa.array(values, pa.large_string())
    assert texts_in_form(array, form).to_pylist() == [make(v or "") for v in values]
    assert texts_in_form(array, "raw") is array


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Tiếng Việt", unicodedata.normalize("NFD", "TIẾNG VIỆT")),
        ("한국어", unicodedata.normalize("NFD", "한국어")),
        ("hyphenation", "hy\xadphen\u200ba\u2060tion\ufeff"),
        ("Full width 1", "Ｆｕｌｌ　ｗｉｄｔｈ　１"),
        ("Straße ﬁn", "STRASSE FIN"),
    ],
)
def test_visually_equal_texts_are_equal_after_nfkc_casefold(one: str, other: str) -> None:
    assert nfkc_casefold(one) == nfkc_casefold(other)
    assert one != other


@given(st.text())
def test_lines_stay_lines(text: str) -> None:
    assert nfkc_casefold(text).split("\n") == list(map(nfkc_casefold, text.split("\n")))


def test_normalised_pieces_are_written_back_to_back() -> None:
    data = np.frombuffer(bytearray("Ab\u0301|Z|\xad".encode()), np.uint8)
    start, end = np.array([0, 5, 7]), np.array([4, 6, 9])
    new, begins, ends = in_form(data, start, end, "nfkc_cf")
    assert [bytes(new[a:z]).decode() for a, z in zip(begins, ends, strict=True)] == [
        "ab\u0301",
        "z",
        "",
    ]
