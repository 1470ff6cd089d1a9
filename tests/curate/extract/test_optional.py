"""Extractors of other projects: the arguments they get, and errors if they are not installed.

Stubs replace the libraries; where a library is installed, a page goes through it too.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from curate.documents.documents import CORE, PAYLOAD, Documents, documents
from curate.extract import extraction as optional
from curate.extract.extraction import Extract
from llmcurate.base.errors import RunFailed, UsageError

PROSE = (
    "<p>The river runs past the old mill, and nobody works there any more. In the spring the wheel "
    "turns all the same, because there was nobody who would have taken it down. The children say "
    "that they hear the stones at night when they are out on the road.</p>"
) * 3
DEEP = "<div>x" * 2000


def module(name: str, **content: Any) -> ModuleType:
    found = ModuleType(name)
    found.__spec__ = ModuleSpec(name, None)
    found.__dict__.update(content)
    return found


@pytest.fixture()
def trafilatura(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in that notes how it was called."""
    calls: list[dict[str, Any]] = []

    def extract(html: str, **options: Any) -> str | None:
        calls.append(options)
        if "fails" in html:
            raise ValueError("no such page")
        return None if "empty" in html else f"text of {len(html)}"

    monkeypatch.setitem(sys.modules, "trafilatura", module("trafilatura", extract=extract))
    return calls


@pytest.fixture()
def justext(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: paragraphs are lines, those with a stop word are text."""
    lists = {"English": {"the", "and"}, "German": {"der", "und"}}

    def judge(html: bytes, words: frozenset[str], encoding: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(text=line, is_boilerplate=not words & set(line.split()))
            for line in html.decode(encoding).split("\n")
        ]

    library = module(
        "justext", justext=judge, get_stoplists=lambda: lists.keys(), get_stoplist=lists.__getitem__
    )
    monkeypatch.setitem(sys.modules, "justext", library)


def extracted(*pages: str, **settings: Any) -> Documents:
    step = Extract(**settings)
    step.identity()
    docs = documents(
        {"payload": [p.encode() for p in pages], "mime": ["text/html"] * len(pages)},
        (*CORE, *PAYLOAD),
    )
    return step.apply(docs.within("extract"))


def reasons(docs: Documents) -> list[tuple[str, int]]:
    return [(d.rule, int(r)) for d in docs.drops for r in d.rows]


@pytest.mark.parametrize(("favor", "precision", "recall"), [
    ("balanced", False, False), ("precision", True, False), ("recall", False, True),
])  # fmt: skip
def test_trafilatura_is_asked_for_text_without_comments(
    trafilatura: list[dict[str, Any]], favor: str, precision: bool, recall: bool
) -> None:
    docs = extracted("<p>x</p>", extractor="trafilatura", favor=favor)
    assert docs.text.to_pylist() == ["text of 8"]
    assert trafilatura == [
        {
            "include_comments": False,
            "deduplicate": False,
            "favor_precision": precision,
            "favor_recall": recall,
        }
    ]


def test_pages_that_trafilatura_cannot_take_have_a_reason(
    trafilatura: list[dict[str, Any]],
) -> None:
    docs = extracted("fails", "empty", DEEP, PROSE, extractor="trafilatura")
    assert sorted(reasons(docs)) == [("nested_too_deep", 2), ("no_text", 1), ("unparsable", 0)]
    assert len(trafilatura) == 3  # the deep page never reached it
    assert next(d for d in docs.drops if d.rule == "unparsable").details == (
        "ValueError: no such page",
    )


def test_justext_keeps_what_its_stop_words_make_text_of(justext: None) -> None:
    page = "the mill\nder Fluss\nHome"
    for language, text in (
        ("English", "the mill"),
        ("German", "der Fluss"),
        ("all", "the mill\n\nder Fluss"),
    ):
        docs = extracted(page, "", DEEP, extractor="justext", stop_words=language)
        assert docs.text[0].as_py() == text
        assert sorted(reasons(docs)) == [("nested_too_deep", 2), ("no_text", 1)]


def test_a_language_without_stop_words_is_refused_by_name(justext: None) -> None:
    with pytest.raises(UsageError, match="'Klingon'; known: all, English, German"):
        Extract(extractor="justext", stop_words="Klingon").identity()


@pytest.mark.parametrize("name", ["trafilatura", "justext"])
def test_an_absent_library_fails_before_the_run_and_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda module: None)
    with pytest.raises(RunFailed, match=r"pip install 'llmcurate\[extractors\]'"):
        Extract(extractor=name).identity()  # type: ignore[arg-type]
    Extract(extractor="blocks").identity()


@pytest.mark.parametrize("name", ["trafilatura", "justext"])
def test_the_library_itself_gives_a_page_its_text(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    docs = extracted(f"<html><body><main>{PROSE}</main></body></html>", extractor=name)
    assert "old mill" in docs.text[0].as_py()
