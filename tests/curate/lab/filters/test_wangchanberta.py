"""WangchanBERTa's cleaning against its rules written as plain substitutions, and its edits."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.lab.filters.wangchanberta import RULES, WangchanBERTa

SIGNS = "ก กา า abc é 🙂 ( ) { } [ ] () [;] ! !!!! ... 5 &amp; &lt nbsp; <br/> &#39; #39; & ;"
BLANKS = (" ", "  ", "\n", "\n\n", "\t", "\xa0", "\xad", "\ufeff", "<br />")
PIECES = st.sampled_from([*SIGNS.split(), *BLANKS])
LETTER = "a-zA-Z0-9ก-๙"
LOST = {"nbsp;": " ", "amp;": "&", "quot;": '"', "#39;": "'", "#146;": "'", "#36;": "$"}


def entities(text: str) -> str:
    """Each entity, lost or whole, once."""
    out, at = "", 0
    while at < len(text):
        rest = text[at:]
        lost = next((k for k in LOST if rest.startswith(k)), None)
        whole = re.match(r"&(#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)", rest)
        line = re.match(r"<br\s*/?>", rest)
        before = text[at - 1] if at else " "
        if line:
            out, at = out + "\n", at + line.end()
        elif whole:
            out, at = out + html.unescape(whole.group()).replace("\xa0", " "), at + whole.end()
        elif lost and not re.match(r"[\w&#]", before):
            out, at = out + LOST[lost], at + len(lost)
        else:
            out, at = out + text[at], at + 1
    return out


def reference(text: str) -> str:
    """The rules one after the other, as thai2transformers has them."""
    text = text.replace("\xa0", " ").replace("\xad", "").replace("\ufeff", "")
    text = entities(text)
    for empty in ("()", "{}", "[]"):
        text = text.replace(empty, "")
    pairs = [("\\(", "\\)"), ("\\{", "\\}"), ("\\[", "\\]")]
    for a, z in pairs:
        text = re.sub(f"{a}[^{LETTER}]+{z}", "", text)
    for a, _ in pairs:
        text = re.sub(f"({a})[^{LETTER}]+([{LETTER}])", r"\1\2", text)
    for _, z in pairs:
        text = re.sub(f"([{LETTER}])[^{LETTER}]+({z})", r"\1\2", text)
    text = text.strip().replace("\n", " ")
    text = re.sub(" {2,}", " ", text)
    return re.sub(r"(\S)\1{3,}", r"\1", text)


def cleaned(text: str, **options: Any) -> tuple[str, list[dict[str, Any]]]:
    docs = WangchanBERTa(min_thai_chars=0, **options).apply(
        documents({"text": [text]}).within("wangchanberta")
    )
    kept = docs.split()[0].to_pylist()[0]
    return kept["text"], kept.get("edits") or []


@settings(deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_the_text_is_what_the_rules_give_one_after_the_other(text: str) -> None:
    assert cleaned(text)[0] == reference(text)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_the_edits_on_record_lead_from_the_text_to_the_result(text: str) -> None:
    result, edits = cleaned(text)
    raw, out, at = text.encode(), b"", 0
    for edit in edits:
        assert at <= edit["start"] < edit["end"]
        out += raw[at : edit["start"]] + (edit["replacement"] or "").encode()
        at = edit["end"]
        assert edit["rule"] in RULES
    assert (out + raw[at:]).decode() == result


@pytest.mark.parametrize(
    ("text", "expected", "rule"),
    [
        ("กาาาาาาา", "กา", "repeated"),
        ("hey() whats[;] up{*&} man(hey)", "hey whats up man(hey)", "brackets"),
        ("กข\n\nคง", "กข คง", "newlines"),
        ("ก &lt; ข", "ก < ข", "html"),
        ("ก\ufeffข", "กข", "invisible"),
        ("oh         no", "oh no", "spaces"),
        ("กาาา", "กาาา", None),
    ],
)
def test_a_rule_does_what_its_example_says(text: str, expected: str, rule: str | None) -> None:
    result, edits = cleaned(text)
    assert result == expected
    assert {e["rule"] for e in edits} <= {rule, "spaces"}
    assert (rule in {e["rule"] for e in edits}) is (rule is not None)


def test_line_breaks_stay_without_join_lines() -> None:
    assert cleaned("ก\nข  ค", join_lines=False)[0] == "ก\nข ค"


def test_documents_with_too_little_thai_go_with_a_reason() -> None:
    step = WangchanBERTa(min_thai_share=0.5)
    docs = step.apply(documents({"text": ["ไทย", "no Thai", "ไ and more", None]}).within("w"))
    kept, gone = docs.split()
    assert kept["text"].to_pylist() == ["ไทย"]
    assert gone["rule"].to_pylist() == ["no_thai", "thai_share", "no_thai"]
    assert gone["threshold"].to_pylist() == [1.0, 0.5, 1.0]


@given(st.text(st.sampled_from("กฺ฿เ๙๚๛ aé文🙂\u0e00")))
def test_thai_characters_are_those_of_the_class(text: str) -> None:
    docs = WangchanBERTa().apply(documents({"text": [text]}).within("wangchanberta"))
    assert docs.table["wangchanberta.thai_chars"].to_pylist() == [len(re.findall("[ก-๙]", text))]


@pytest.mark.parametrize(
    "text",
    ["(" * 20_000, " " * 20_000 + "x", "(!" * 10_000, "&" * 20_000],
    ids=["brackets", "blanks", "brackets and signs", "ampersands"],
)
def test_hostile_runs_take_no_quadratic_time(text: str) -> None:
    began = time.process_time()
    cleaned(text)
    assert time.process_time() - began < 5
