"""No text makes a step take time that grows with the square of its length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curate.documents.documents import CORE, NUMBER, PAYLOAD, documents
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
    "dedup_suffix_array",
)
PAGES = ("extract", "opt_out")


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_text_of_four_times_the_length_takes_no_ten_times_as_long(name: str) -> None:
    step: Any = step_class(name)(**SETTINGS.get(name, {}))
    if hasattr(step, "sketch"):
        step.open()
    else:
        step.open_in(Path())

    def work(text: str) -> object:
        columns: dict[str, Any] = {"id": ["a"], "lang": ["en"], NUMBER: [0]}
        if name in PAGES:
            columns |= {"text": [None], "payload": [text.encode()], "mime": ["text/html"]}
        else:
            columns["text"] = [text]
        columns["url"] = [f"http://{text if name == 'url_filter' else 'a.b/c'}"]
        schema = (*CORE, *(PAYLOAD if name in PAGES else ()), (NUMBER, pa.int64()))
        docs = documents(columns, schema).within(step.label)
        return step.sketch(docs) if hasattr(step, "sketch") else step.apply(docs)

    work("The sea and the hills. " * 100)  # compiles
    slow = [u for u in UNITS if not grows_linearly(work, lambda n, u=u: u * (n // len(u)), 8_000)]
    assert slow == []
