"""resiliparse extracts the sampled pages again, where its extractor ran."""

from __future__ import annotations

from typing import Any

from curate.inspect.verify.finished_run import FinishedRun
from curate.inspect.verify.tally import NotInRun, Tally, need
from curate.text.buffers import decode

# What the recipe's `extract: {extractor: NAME}` stands for (DCLM's settings; all visible text).
ARGUMENTS: dict[str, dict[str, Any]] = {
    "resiliparse": {
        "preserve_formatting": True,
        "main_content": True,
        "list_bullets": True,
        "alt_texts": True,
        "links": False,
        "form_fields": False,
        "noscript": False,
        "comments": True,
    },
    "text": {"preserve_formatting": True, "main_content": False},
}
HTML = ("text/html", "application/xhtml+xml")


def check(run: FinishedRun) -> list[Tally]:
    """The stored text is resiliparse's after the edits that the run recorded."""
    steps: list[Any] = run.of("extract")
    if not steps:
        raise NotInRun("the run extracted no pages")
    need("resiliparse", "resiliparse")
    step = steps[0]
    if step.extractor not in ARGUMENTS:
        raise NotInRun(f"pages were extracted by {step.extractor}, not by resiliparse")
    from resiliparse.extract.html2text import extract_plain_text

    tally = Tally("resiliparse", "main text of pages")
    for document in run.sample:
        source, row = run.sources.get(document.id), document.row
        if source is None:
            tally.differs(document.id, "the input holds no such document")
            continue
        refused = source.refused is not None or row.get("step") == step.label
        if source.payload is None or refused or run.unextracted(document):
            continue  # refused by the reader or by the extractor's limits, or dropped before it
        plain = (source.mime or "").startswith("text/") and source.mime not in HTML
        text, _ = decode(source.payload, source.charset, html=source.mime in HTML)
        if not plain:
            text = extract_plain_text(text, **ARGUMENTS[step.extractor])
        if document.edited(text.encode("utf-8", "replace")) == document.text:
            tally.agrees()
        else:
            tally.differs(document.id, "the stored text does not follow from resiliparse's")
    return [tally]
