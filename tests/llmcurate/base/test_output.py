"""Text for a terminal contains no control sequences from documents or names."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.cli.app import _report
from curate.inspect.explain import Account
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import (
    DIRECTION,
    Progress,
    echo,
    echo_json,
    one_line,
    print_lines,
    say,
    table,
    visible,
)

HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\x7f\u202etxt.\u2066\ud83d\r\x00"


def obeyed(shown: str) -> list[str]:
    """The characters of what is shown that a terminal would obey."""
    codes = {*range(9), *range(11, 32), *range(0x7F, 0xA0), *DIRECTION, *range(0xD800, 0xE000)}
    return [c for c in shown if ord(c) in codes]


def test_all_ways_out_make_control_characters_visible(capsys):
    echo(HOSTILE)
    print_lines(HOSTILE)
    say(f"skipped {HOSTILE}")
    with Progress(HOSTILE, 2) as progress:
        progress._shown_at -= 100
        progress.update(note=HOSTILE)
    echo("\n".join(table((), [[HOSTILE, "1"]])))
    for error in (RunFailed(HOSTILE), ValueError(HOSTILE), OSError(2, "No such file", HOSTILE)):
        _report(error)
    shown = capsys.readouterr()
    assert shown.out.count("owned") == 2 and shown.err.count("owned") == 7
    assert obeyed(shown.out) == obeyed(shown.err) == []


@pytest.mark.parametrize("error", [UsageError, RunFailed, ValueError])
def test_an_error_is_one_line_whatever_its_message(error, capsys):
    _report(error("first\nsecond"))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_whose_name_has_a_line_end_makes_no_second_line(capsys):
    _report(FileNotFoundError(2, "No such file", "a\nllmcurate: all is well"))
    say("skipped a\nb")
    assert capsys.readouterr().err.count("\n") == 2


@given(st.text())
@settings(deadline=None, max_examples=30)
def test_made_visible_text_stays_the_same_and_holds_no_terminal_commands(words):
    shown = visible(words)
    assert visible(shown) == shown and "\n" not in one_line(words)
    assert obeyed(shown) == []


@given(st.text(st.characters(codec=None)))
@settings(deadline=None, max_examples=30)
def test_json_is_of_the_same_value_and_holds_nothing_that_a_terminal_obeys(words):
    stream = io.StringIO()
    echo_json({"text": words}, stream)
    line = stream.getvalue()
    assert json.loads(line) == {"text": words} and obeyed(line) == []


def test_bytes_of_a_name_that_are_no_utf_8_have_one_escape():
    assert visible(os.fsdecode(b"caf\xe9.jsonl")) == "caf\\xe9.jsonl"


def test_a_stream_that_lacks_a_character_gets_an_escape(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", write_through=True))
    echo("\u2588 100 %")
    assert raw.getvalue() == b"\\u2588 100 %\n"


def test_an_explanation_shows_no_field_of_a_document_raw():
    account = Account(
        id=f"{HOSTILE}\nstatus: kept", status="kept", url=HOSTILE, source=HOSTILE,
        out="OUT", reasons=[], settings={}, edits=[], decisions=[],
        measured={"step.column": HOSTILE}, explained={"step": [HOSTILE]}, text=HOSTILE,
    )  # fmt: skip
    shown = str(account)
    assert obeyed(shown) == [] and len(shown.splitlines()) == 7
