"""A page that shows drawn pages of gold beside our text: what is missing, what is extra."""

from __future__ import annotations

import random
from pathlib import Path

from markupsafe import Markup

from benchmarks.extract_pages import NewsPage, WholePage
from benchmarks.extract_scores import Pages, Texts, words_of
from curate.extract.evaluate import word_scores
from llmcurate.base.pages import html
from llmcurate.base.pages.side_by_side import side_by_side

_PAGE = Markup("""<!doctype html><html lang=en><meta charset=utf-8>
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Main text, page by page</title><style>{style}
del,ins{{text-decoration:none}} .sides pre{{max-height:40rem;overflow:auto}}
body{{max-width:80rem;margin:auto;padding:1rem}} i{{color:var(--muted)}}</style>
<h1>Main text, page by page</h1>
<p>{count} pages of WCXB and of news, drawn with seed {seed}; mean F1 {mean:.3f}.
<del>Missing</del>: words of the gold that our text lacks. <ins>Extra</ins>: words that it adds.
Told by runs of four words, wherever they stand; what both have is shortened, long texts are cut.
</p>{pages}""")
_ENTRY = Markup("""<section><h2>{number}. {name}</h2>
<p>{group}: F1 {f1:.3f}, precision {precision:.3f}, recall {recall:.3f}</p>
<div class=sides><div><p>gold</p><pre dir=auto>{gold}</pre></div>
<div><p>ours</p><pre dir=auto>{ours}</pre></div></div></section>
""")


def show(pages: Pages, texts: Texts, count: int, seed: int, folder: Path) -> Path:
    """Writes the page into the folder; its path."""
    both: list[tuple[WholePage | NewsPage, str]] = [
        *zip(pages.whole, texts.whole, strict=True),
        *zip(pages.news, texts.news, strict=True),
    ]
    shown, scores = [], []
    for page, text in random.Random(seed).sample(both, min(count, len(both))):
        lang = page.lang if isinstance(page, NewsPage) else ""
        precision, recall, f1 = word_scores(words_of(text, lang), words_of(page.text, lang))
        scores.append(f1)
        gold, ours = side_by_side(page.text, text)
        shown.append(
            _ENTRY.format(
                number=len(shown) + 1,
                name=html.name(page.url),
                group=f"news, {lang}" if isinstance(page, NewsPage) else page.kind,
                f1=f1,
                precision=precision,
                recall=recall,
                gold=gold or "(empty)",
                ours=ours or "(empty)",
            )
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "main-texts.html"
    page_text = _PAGE.format(
        policy=html.POLICY,
        style=Markup((html.FOLDER / "style.css").read_text(encoding="utf-8")),
        count=len(shown),
        seed=seed,
        mean=sum(scores) / max(1, len(scores)),
        pages=Markup("").join(shown),
    )
    path.write_text(page_text.encode("utf-8", "replace").decode(), encoding="utf-8")
    return path
