"""Check of `extract` with resiliparse, which extracts the sampled pages again."""

from __future__ import annotations

from curate.extract.extraction import Extract, may_declare
from curate.lab.verify.finished_run import FinishedRun
from curate.lab.verify.tally import NotInRun, Tally, need
from curate.text.decoding import decode

EXTRACTORS = ("resiliparse", "text")
HTML = ("text/html", "application/xhtml+xml")


def check(run: FinishedRun) -> list[Tally]:
    steps = run.of(Extract)
    if not steps:
        raise NotInRun("the run extracted no pages")
    need("resiliparse", "resiliparse")
    step = steps[0]
    if step.extractor not in EXTRACTORS:
        raise NotInRun(f"pages were extracted by {step.extractor}, not by resiliparse")
    tally = Tally("resiliparse", "main text of pages")
    for document in run.sample:
        source, row = run.sources.get(document.id), document.row
        if source is None:
            tally.differs(document.id, "the document is not in the input")
            continue
        refused = source.refused is not None or row.get("step") == step.label
        if source.payload is None or refused or run.unextracted(document):
            continue  # refused by the reader or by the extractor's limits, or dropped before it
        plain = (source.mime or "").startswith("text/") and source.mime not in HTML
        html = may_declare(source.mime)
        text = decode(source.payload, source.charset, html=html, url=source.url).text
        if not plain:
            text = _main_text(text, step.extractor)
        if document.edited(text.encode("utf-8", "replace")) == document.text:
            tally.agrees()
        else:
            tally.differs(document.id, "the recorded edits do not turn resiliparse's text into it")
    return [tally]


def _main_text(page: str, extractor: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    if extractor == "text":
        return extract_plain_text(page, preserve_formatting=True, main_content=False)
    return extract_plain_text(
        page,
        preserve_formatting=True,
        main_content=True,
        list_bullets=True,
        alt_texts=True,
        links=False,
        form_fields=False,
        noscript=False,
        comments=True,
    )
