"""No text makes a step take time that grows with the square of its length."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curate.documents.documents import CORE, NUMBER, PAYLOAD, documents
from curate.steps.contracts import open_in
from curate.steps.registry import step_class
from tests.curate.doubling import grows_linearly

# What regular expressions with nested repeats, scans from each position and copies of the rest
# stumble over.
UNITS = (
    *("a", " ", "\n", "\t \n", "a b\n", "a. ", "a\n\n", "…", "漢", "ก", "\u0301", "\x00", "'", '"'),
    *("1234 ", "(1) ", "+", "1.", "1.1.1.1 ", "2001::1 ", "::", "1-", "00", "tel ", "version 1.1"),
    *("@", "a@", "a@a.", ".@", "http://", "www.", "a.b/", "%20", "-eyJ", " xoxa-1-", "sk-", "_"),
    *("-----BEGIN ", "PRIVATE KEY-----", "<", "<!--", "<p>", "<div>", "</", "&", "&#x", "<a href="),
    *("<meta name=", "{", "[", "//", "/*", "# ", "$$", "\\", "(c) ", "Copyright ", "* a\n", "| a "),
    *(
        "/* copyright ",
        "[[",
        "{{",
        "(",
        "|",
        "%",
        "-",
        "\t",
        "A.",
        "0x",
        "AKIA",
        "://",
        "中",
        "e\u0301",
    ),
    *(
        "+49 1 ",
        "8 (495) ",
        "(0",
        "2020-01-01",
        "a@a.a ",
        "v 1.1.1.1 ",
        "a 1234567 ",
        "eyJaaaaaaaa.",
    ),
    *(
        "\\begin{",
        "<p a=",
        "<table><tr><td>",
        "<script>",
        "</p>",
        "by A ",
        "ab ab ",
        "a-",
        "\u200d",
        "😀",
    ),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "pii": {"phones": True, "credit_cards": True, "keys": True},
    "opt_out": {"meta": True},
}
STEPS = (
    *("extract", "c4", "c4_paragraphs", "bad_words", "refinedweb_lines", "gopher_quality"),
    *("gopher_repetition", "fineweb_quality", "oscar", "periodic_repetition", "roots", "code"),
    *("license_notice", "license", "notebook", "newline_runs", "wangchanberta", "url_filter"),
    *("pii", "opt_out", "dedup_exact", "dedup_minhash", "dedup_bloom", "dedup_passages"),
    *("dedup_suffix_array", "dedup_simhash", "ratios"),
)
PAGES = ("extract", "opt_out")


# What made a step slow once: (step, unit).
ONCE_SLOW = (
    *(("license_notice", unit) for unit in ("/* copyright ", "/*/", "# copyright\n")),
    *(("pii", unit) for unit in ("1.1.1.", "(0", "8 (495) ", "@", "a@", "1.1.1.1 ", "-eyJ")),
    *(("code", "<"), ("wangchanberta", "(("), ("notebook", "{"), ("license", "\n")),
)


def repeated(unit: str, size: int) -> str:
    """A text of about so many characters."""
    return unit * (size // len(unit))


def worker(name: str) -> Callable[[str], object]:
    """What the step does with a text."""
    step: Any = step_class(name)(**SETTINGS.get(name, {}))
    if hasattr(step, "sketch"):
        step.open()
    else:
        open_in(step, Path())

    def work(text: str) -> object:
        columns: dict[str, Any] = {"id": ["a"], "lang": ["en"], NUMBER: [0]}
        if name in PAGES:
            columns |= {"text": [None], "payload": [text.encode()], "mime": ["text/html"]}
        else:
            columns["text"] = [text]
        columns["url"] = [f"http://{text if name == 'url_filter' else 'a.b/c.html'}"]
        schema = (*CORE, *(PAYLOAD if name in PAGES else ()), (NUMBER, pa.int64()))
        docs = documents(columns, schema).within(step.label)
        return step.sketch(docs) if hasattr(step, "sketch") else step.apply(docs)

    work("The sea and the hills. " * 100)  # compiles
    return work


@pytest.mark.lab
@pytest.mark.parametrize(("name", "unit"), ONCE_SLOW)
def test_known_slow_texts_take_linear_time(name: str, unit: str) -> None:
    assert grows_linearly(worker(name), partial(repeated, unit), 16_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_text_of_four_times_the_length_takes_no_ten_times_as_long(name: str) -> None:
    work = worker(name)
    slow = [u for u in UNITS if not grows_linearly(work, partial(repeated, u), 8_000)]
    assert slow == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_megabyte_of_anything_takes_five_seconds_at_most(name: str) -> None:
    work, slow = worker(name), {}
    for unit in UNITS:
        text = (unit * (1_000_000 // len(unit.encode()) + 1))[: 1 << 20]
        began = time.process_time()
        work(text)
        if (seconds := time.process_time() - began) > 5:
            slow[unit] = seconds
    assert slow == {}
