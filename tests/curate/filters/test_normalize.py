"""Repairing texts as ftfy does, without removing what scripts need."""

from __future__ import annotations

import gzip
import json
import unicodedata
from functools import lru_cache

import ftfy
import numpy as np
import pytest
from ftfy.badness import is_bad
from ftfy.chardata import CHARMAP_ENCODINGS
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.filters.normalize import KINDS, Normalize
from curate.filters.normalize_kernel import mojibake, sequences, suspicious_lines
from tests.curate.filters.filter_texts import JUNK, SHARED, applied
from tests.curate.replayed_edits import replayed

# The reference: ftfy.fix_text with fix_encoding and nothing else.
ENCODING_ONLY = ftfy.TextFixerConfig(
    unescape_html=False,
    remove_terminal_escapes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    fix_surrogates=False,
    remove_control_chars=False,
    normalization=None,
    explain=False,
)
CLEAN = [
    "L’été, « où ça ? », dit-elle — à Noël.", "Straße, Größe, „Übung“ · 20 °C, 5 €, §7",
    "Œuvre complète: l'œuf, cœur; 'naïve' ½ ± ²", "ПРИВЕТ, мир! Ђорђе №5", "Ελλάδα· «ΚΑΛΗΜΕΡΑ»",
    "NÃO À MANHÃ DE SÃO JOÃO", "Tiếng Việt", "สวัสดีครับ", "سلام دنیا", "नमस्ते", "漢字かな한글",
]  # fmt: skip
SAMPLES = [*CLEAN, "I’ll “quote” – this… à la carte", "日本語", "привет", "ไทย", "été €5", "ﬁ 😀"]


def made_of(step: Normalize, *texts: str | None) -> list[str | None]:
    """The texts after the step, of which the recorded edits make the same."""
    docs, _ = applied(step, list(texts))
    rows = docs.split()[0].to_pylist()
    for text, row in zip(texts, rows, strict=True):
        assert text is None or replayed(text, row.get("edits") or []) == row["text"]
    return [row["text"] for row in rows]


def suspicious(text: str) -> bool:
    """Whether the kernel finds a line in the text."""
    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    return len(suspicious_lines(data, np.array([0, len(data)]), mojibake())) > 0


@st.composite
def garbled(draw: st.DrawFn) -> str:
    """Texts read in a wrong encoding once or twice, in part, with bytes lost or made blanks."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        text = draw(st.sampled_from(SAMPLES) | st.text(max_size=12))
        for _ in range(draw(st.integers(0, 2))):
            encoding = draw(st.sampled_from(CHARMAP_ENCODINGS))
            text = text.encode("utf-8", "replace").decode(encoding, "replace")
        change = draw(
            st.sampled_from([("\xa0", " "), ("\x9d", "\ufffd"), ("\ufffd", "?"), ("", "")])
        )
        parts.append(text.replace(*change) if change[0] else text)
    return draw(st.sampled_from(["", " ", "\n", "a", ". "])).join(parts)


@lru_cache
def of_languages() -> list[str]:
    """Sentences of some hundred languages."""
    path = SHARED / "corpora/langid/langid-dev.jsonl.gz"
    if not path.is_file():
        pytest.skip("no ../shared/corpora/langid")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines][::9]


@given(st.lists(garbled(), max_size=4))
def test_a_text_is_repaired_as_ftfy_repairs_it(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    assert made_of(Normalize(), *texts) == [ftfy.fix_text(t, ENCODING_ONLY) for t in texts]


@given(garbled())
def test_a_text_that_is_not_suspicious_ftfy_leaves(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert suspicious(text) or ftfy.fix_encoding(text) == text == ftfy.fix_text(text, ENCODING_ONLY)


@pytest.mark.parametrize("encoding", CHARMAP_ENCODINGS)
@pytest.mark.parametrize("text", SAMPLES)
def test_every_encoding_of_ftfy_is_undone_as_ftfy_does(text: str, encoding: str) -> None:
    for lost in ("replace", "ignore"):
        wrong = text.encode().decode(encoding, lost)
        assert made_of(Normalize(), wrong) == [ftfy.fix_text(wrong, ENCODING_ONLY)]


def test_texts_of_all_languages_are_as_ftfy_leaves_them() -> None:
    texts = of_languages()
    assert made_of(Normalize(), *texts) == [ftfy.fix_text(t, ENCODING_ONLY) for t in texts]
    assert [suspicious(t) for t in texts] == [is_bad(t) for t in texts]


def test_clean_texts_are_not_suspicious_but_for_a_sequence_that_begins_segments() -> None:
    assert [text for text in CLEAN if suspicious(text)] == [t for t in CLEAN if "Ã " in t]


def test_lines_are_repaired_one_by_one_and_recorded_where_they_change() -> None:
    docs = Normalize().apply(documents({"text": ["ok\nsÃ³ é\nok", None]}).within("normalize"))
    row = docs.split()[0].to_pylist()[0]
    edits = [(e["rule"], e["start"], e["end"], e["replacement"]) for e in row["edits"]]
    assert edits == [("mojibake", 3, 12, "só é\n")]
    assert docs.table["normalize.mojibake"].to_pylist() == [1, 0]
    assert docs.text.to_pylist() == ["ok\nsó é\nok", None]


def test_a_pattern_of_another_form_is_refused() -> None:
    assert sequences("[ab] \\s? c | ^ d # | e") == [["[ab]", "\\s", "c"], ["[ab]", "c"], ["d"]]
    with pytest.raises(ValueError, match="is not supported"):
        sequences("(ab)+")


def test_only_mojibake_is_touched_unless_more_is_asked_for() -> None:
    text = "e\u0301 “q”\r\n a\u00adb\u200b  \xa0x ﬁ"
    assert made_of(Normalize(), text) == [text]
    assert made_of(Normalize(mojibake=False), "sÃ³") == ["sÃ³"]


@pytest.mark.parametrize("form", ["nfc", "nfd", "nfkc", "nfkd"])
@given(text=st.text())
def test_a_form_is_that_of_unicode(form: str, text: str) -> None:
    normal = unicodedata.normalize(form.upper(), text)
    if not any(
        0x600 <= ord(c) < 0x700 or c in "\u0e33\u0eb3\u0edc\u0edd" or c > "\uf000" for c in text
    ):
        assert made_of(Normalize(mojibake=False, form=form), text) == [normal]


def test_line_ends_blanks_and_quotes_are_made_plain() -> None:
    step = Normalize(line_ends=True, blanks=True, quotes=True)
    text = "“a”\u3000 \t‘b’ \r\nc\u2028\xa0d\x0be\r\r "
    assert made_of(step, text) == ["\"a\" 'b'\nc\n d\x0be\n\n"]
    assert made_of(Normalize(line_ends=True), "a\r\nb\rc\x85") == ["a\nb\nc…"]  # a C1 control


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("so\u00adft hy\u200bphen\u2060s\ufeff", "soft hyphens"),
        ("a\u200cb \u200d c", "ab  c"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # a Persian prefix
        ("क्\u200dष क्\u200cष", "क्\u200dष क्\u200cष"),  # half form, and visible virama
        ("ന്\u200d ", "ന്\u200d "),  # a Malayalam chillu at a word's end
        ("👩\u200d🔬 ❤\ufe0f\u200d🔥 👨🏽\u200d⚕", "👩\u200d🔬 ❤\ufe0f\u200d🔥 👨🏽\u200d⚕"),
        ("ภาษา\u200bไทย ភាសា\u200bខ្មែរ", "ภาษา\u200bไทย ភាសា\u200bខ្មែរ"),
        ("ไทย\u200b\u00ad English\u200btext", "ไทย\u200b Englishtext"),  # mixed: by neighbours
    ],
)
def test_invisible_characters_go_but_where_a_script_needs_them(text: str, left: str) -> None:
    assert made_of(Normalize(invisible=True), text) == [left]


@pytest.mark.parametrize("form", ["nfkc", "nfkd"])
@pytest.mark.parametrize("text", ["น้ำ ทำ", "ຄຳ ໜ ໝ", "محمد ﷺ"])
def test_compatibility_forms_leave_what_scripts_need(text: str, form: str) -> None:
    step = Normalize(form=form)
    assert made_of(step, text) == [text]
    assert made_of(step, f"ﬁ{text}Ａ") == [f"fi{text}A"]


@given(st.lists(st.text("aé\u0301 “\u2019\xad\u200b\u200d\r\n\x85\tกำｱÃ³Â€™\x9d", max_size=12)))
def test_with_all_on_edits_make_the_text_and_a_second_pass_finds_little(texts: list[str]) -> None:
    on = dict.fromkeys(("line_ends", "blanks", "invisible", "quotes"), True)
    step = Normalize(form="nfkc", **on)
    for text in made_of(step, *texts):
        assert unicodedata.is_normalized("NFC", text or "")
        assert "\r" not in (text or "")


def test_junk_is_counted_by_kind() -> None:
    docs, _ = applied(Normalize(form="nfkc", blanks=True), [*JUNK, None])
    columns = [f"normalize.{kind}" for kind in KINDS if kind in ("mojibake", "form", "blanks")]
    assert [name for name in columns if name in docs.table.column_names] == columns


def test_the_versions_that_decide_are_in_the_identity() -> None:
    contents = {"ftfy": ftfy.__version__, "unicode": unicodedata.unidata_version}
    assert Normalize().identity().contents == contents
