"""Copies: clusters by method, pairs side by side, how it was decided, and how old copies are."""

from __future__ import annotations

from typing import Any

from curate.inspect.report.ages import Ages
from curate.inspect.report.duplicates import SIZES, Method, Pair
from curate.inspect.report.figures import Figures
from curate.pages import charts
from curate.pages.diff import word_diff
from curate.pages.html import bar, count, details, lead, name, quote, section, shown, table


def chapter(record: dict[str, Any], figures: Figures) -> tuple[str, str, str]:
    """Clusters of copies by method, pairs side by side, and how each dedup decided."""
    decided = [_decided(s["decided"], s) for s in record["stages"] if s.get("decided")]
    if not any(m.members or m.unknown for m in figures.duplicates) and not any(decided):
        return section("duplicates", "Duplicates")
    return section(
        "duplicates",
        "Duplicates",
        lead(
            "Documents, or passages of them, that are copies of each other form a cluster; one of"
            " them stays, unless the recipe says that none does."
            " <code>decisions.parquet</code> lists every member."
        ),
        "".join(_method(m) for m in figures.duplicates if m.members or m.unknown),
        "".join(decided),
    )


# What a similarity of 1 means, by the beginning of a method's name.
SIMILARITIES = {
    "minhash": "share of short runs of words (shingles) that two texts have in common",
    "semantic": "cosine of the two embeddings",
    "semantic:prototypical": "cosine of the embedding to its centroid",
    "bloom": "share of n-grams that were seen before",
    "decontaminate": "share of the test item's n-grams that the document holds",
}


def _meaning(method: str) -> str:
    """What the similarities of a method are."""
    kind = method if method in SIMILARITIES else method.partition(":")[0]
    return SIMILARITIES.get(kind, "similarity of the copies to their partner")


def _alone(method: str) -> str:
    """What is said of documents that went without a partner."""
    if method == "semantic:prototypical":
        return "nearest to the centroids of their clusters (D4), and copies of nothing that is left"
    return "of which only this is known: they had been seen before, not where"


def _method(method: Method) -> str:
    of, gone = ("passages", "cut") if method.passages else ("documents", "dropped")
    parts = [f"<h3>{shown(method.name)}</h3>"]
    if method.members:
        parts.append(_clusters(method, of, gone))
    if method.unknown:
        whole = method.unknown_whole
        kinds = [(method.unknown - whole, "passages cut"), (whole, "documents dropped")]
        said = " and ".join(f"{count(n)} {what}" for n, what in kinds if n)
        parts.append(f"<p class=about>{said}, {_alone(method.name)}.</p>")
    if method.similarity is not None:
        chart = charts.histogram(method.similarity.dump(), "copies by similarity", only_marked=True)
        parts.append(f"<figure>{chart}<figcaption>{_meaning(method.name)}</figcaption></figure>")
    pairs = "".join(
        _pair(p, i == 0, method.name == "exact:url") for i, p in enumerate(method.pairs)
    )
    return f"<article class=card>{''.join(parts)}{pairs}</article><br>"


def _clusters(method: Method, of: str, gone: str) -> str:
    most = max(method.sizes.values())
    body = [
        [_size(bound), count(n), bar(n, most, f"{n} clusters")]
        for bound, n in sorted(method.sizes.items())
    ]
    copies = "copy" if method.dropped == 1 else "copies"
    largest = ", ".join(
        f"{count(n)} ({name(kept) if kept is not None else 'no copy stays'})"
        for n, kept in method.largest[:3]
    )
    return (
        f"<p class=about>{count(method.clusters)} clusters with {count(method.members)} {of};"
        f" {count(method.dropped)} {copies} {gone}. The largest, and the document that keeps a"
        f" copy: {largest}.</p>{table([f'{of} in a cluster', 'clusters', ''], body, numbers={1})}"
    )


def _size(bound: int) -> str:
    above = [s for s in SIZES if s > bound]
    if not above:
        return f"{count(bound)} and more"
    return str(bound) if above[0] == bound + 1 else f"{count(bound)} to {count(above[0] - 1)}"


def _pair(pair: Pair, opened: bool, url: bool) -> str:
    left, right, same = word_diff(pair.text, pair.other)
    how = "the same URL" if url else f"similarity {pair.similarity:.3f}"
    said = f"{how}: {name(pair.id)} and {name(pair.partner)}"
    if same:
        return details(f"{said}: the same words", quote(pair.text))
    inner = (
        "<div class=sides>"
        f"<div><p class=about>dropped: {name(pair.id)}</p><pre dir=auto>{left}</pre></div>"
        f"<div><p class=about>partner: {name(pair.partner)}</p><pre dir=auto>{right}</pre></div>"
        "</div><p class=about>From the first difference. <del>Only in the dropped one</del>,"
        " <ins>only in its partner</ins>.</p>"
    )
    return details(said, inner, opened)


def _decided(decided: dict[str, Any], stage: dict[str, Any]) -> str:
    """What a dedup says of how it decided: sentences, curves, hits in earlier corpora."""
    parts = [f"<p>{shown(note, 1000)}</p>" for note in decided.get("notes", ())]
    hits = decided.get("against") or {}
    if hits:
        body = [[name(corpus), count(n)] for corpus, n in hits.items()]
        parts.append(table(["earlier corpus", "copies found there"], body, numbers={1}))
    for line in decided.get("curves", ()):
        points = list(zip(line["x"], line["y"], strict=True))
        if len(points) < 2:
            continue
        mark = line.get("mark")
        lines = [points, [(mark[0], mark[1])]] if mark else [points]
        said = f"{line['title']}: {line['y_label']} over {line['x_label']}"
        if mark:
            said += f"; the point: {mark[2]}"
        chart = charts.curve(lines, line["title"], line["x_label"])
        parts.append(f"<figure>{chart}<figcaption>{shown(said)}</figcaption></figure>")
    if not parts:
        return ""
    label = shown(stage.get("decides") or "dedup")
    return f"<article class=card><h3>How {label} decided</h3>{''.join(parts)}</article><br>"


def ages(figures: Figures) -> tuple[str, str, str]:
    """How old the removed copies are, and the corpus by month or year."""
    found = figures.ages
    if found is None:
        return section("ages", "Ages")
    body = [
        [
            shown(period),
            count(kept + gone),
            count(kept),
            bar(kept, kept + gone, f"{kept} of {kept + gone} kept"),
        ]
        for period, kept, gone in found.periods
    ]
    return section(
        "ages",
        "Ages",
        lead("By the column <code>date</code>. Dropped is whatever any step dropped."),
        _copies(found),
        table(["when", "documents", "kept", ""], body, numbers={1, 2}),
    )


def _copies(found: Ages) -> str:
    if not found.older + found.same + found.newer:
        return ""
    undated = f"; {count(found.undated)} without both dates" if found.undated else ""
    text = (
        f"<p>Of the dropped copies {count(found.older)} are older than the copy that stays,"
        f" {count(found.same)} as old, {count(found.newer)} newer{undated}.</p>"
    )
    if found.days is None:
        return text
    chart = charts.histogram(found.days.dump(), "dropped copies by age", only_marked=True)
    caption = "days by which a dropped copy is older than the one that stays"
    return f"{text}<figure>{chart}<figcaption>{caption}</figcaption></figure>"
