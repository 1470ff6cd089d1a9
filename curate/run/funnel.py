"""The funnel: how many documents went into each step and how many it dropped, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.mix.table import text as mix_lines
from llmcurate.base.disk.units import counted, format_bytes, format_percent
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal.tables import table


@dataclass(frozen=True)
class Row:
    """One step. dropped: documents whose first reason is this step's; rules: by rule.

    text_in, payload_in, text_out, worked: bytes (run/worker/traces.py); None where not recorded.
    """

    step: str
    before: int
    dropped: int
    rules: dict[str, int]
    cut: dict[str, int]
    cut_bytes: int
    seconds: float
    text_in: int | None = None
    payload_in: int = 0
    text_out: int | None = None
    worked: int = 0

    @property
    def after(self) -> int:
        """Documents that go on."""
        return self.before - self.dropped


def rows(record: dict[str, Any]) -> list[Row]:
    """The steps of all stages in order, the reader and the engine where they dropped anything."""
    steps: list[Row] = []
    for stage in record["stages"]:
        documents = stage["read"]
        labels = ["read", *stage["steps"], "engine"]
        for label in labels:
            rules = _of_step(stage["primary"], label)
            cut = _of_step(stage["cut"], label)
            if label in ("read", "engine") and not rules:
                continue
            dropped = sum(rules.values())
            size = sum(_of_step(stage["cut_bytes"], label).values())
            seconds = stage["seconds"].get(label, 0.0)
            volumes = {
                "text_in": stage.get("text_in", {}).get(label),
                "payload_in": stage.get("payload_in", {}).get(label, 0),
                "text_out": stage.get("text_out", {}).get(label),
                "worked": stage.get("worked", {}).get(label, 0),
            }
            steps.append(Row(label, documents, dropped, rules, cut, size, seconds, **volumes))
            documents -= dropped
    return steps


def _of_step(counts: dict[str, int], label: str) -> dict[str, int]:
    """Counts by rule of one step, the largest first."""
    of_step = {k[len(label) + 1 :]: int(v) for k, v in counts.items() if k.startswith(label + ".")}
    return dict(sorted(of_step.items(), key=lambda item: (-item[1], item[0])))


def reasons(row: Row, most: int) -> str:
    """The `most` frequent reasons of a step, and how much it cut."""
    parts = ", ".join(f"{rule} {n:,}" for rule, n in list(row.rules.items())[:most])
    if len(row.rules) > most:
        parts += f" and {len(row.rules) - most} more"
    cut = f"cut {format_bytes(row.cut_bytes)} of text" if row.cut_bytes else ""
    return "; ".join(filter(None, (parts, cut)))


def text(record: dict[str, Any]) -> str:
    """The funnel for a terminal."""
    t = record["totals"]
    skipped = ", ".join(f"{n} {k}" for k, n in sorted(t["skipped_by_type"].items()))
    beside = f", {t['unreadable']} unreadable" if t.get("unreadable") else ""
    if t.get("passed_over"):
        beside += f", {counted(t['passed_over'], 'document')} passed over (read.share)"
    if t.get("bad_dates"):
        beside += f", {counted(t['bad_dates'], 'date')} that cannot be read"
    lines = [t["nothing_kept"]] if t.get("nothing_kept") else []
    if record["stages"]:
        lines.append(
            f"read {counted(t['read'], 'document')} ({format_bytes(t['bytes_in'])}),"
            f" {counted(t['skipped'], 'other record')} skipped, {t['corrupt']:,} corrupt"
            f"{beside}"
        )
        if skipped:
            lines.append(f"  skipped: {skipped[:200]}")
        lines += table(
            ("step", "in", "dropped", "out", "reasons"),
            [
                [row.step, str(row.before), str(row.dropped), str(row.after), reasons(row, 5)]
                for row in rows(record)
            ],
            left=(0, 4),
            indent=2,
        )
        lines.append(
            f"kept {counted(t['kept'], 'document')} ({format_bytes(t['bytes_out'])} of text),"
            f" rejected {t['rejected']:,}, in {t['seconds']:.1f} s"
        )
        if any(stage.get("decided") for stage in record["stages"]):
            lines.append(f"hash of the kept ids: {t['kept_ids']}")
    elif t["read"]:
        rules = ", ".join(f"{k.removeprefix('read.')} {n}" for k, n in t["by_rule"].items())
        refused = f", {t['rejected']} refused ({rules})" if t["rejected"] else ""
        lines.append(
            f"read {counted(t['read'], 'document')} ({format_bytes(t['bytes_in'])}){refused},"
            f" {counted(t['skipped'], 'other record')} skipped, {t['corrupt']:,} corrupt"
            f"{beside}"
        )
    for product in record["products"]:
        lines.append(product_line(product))
        if product["makes"] == "corpus":
            lines += mix_lines(product["mix"])
        if product["makes"] == "model":
            lines += held_out_lines(product["summary"])
    lines += [f"note: {n}" for n in record["notices"] if not n.startswith("skipped ")]
    return "\n".join(lines)


def held_out_lines(summary: dict[str, Any]) -> list[str]:
    """A model's loss on held-out text by source, where there are several, and on other texts."""
    lines = []
    for title, scores in (
        ("held-out text of", summary.get("held_out_sources") or {}),
        ("scored whole", eval_scores(summary)),
    ):
        rows = [
            [plain(name, 48), str(s["documents"]), f"{s['loss']:.3f}",
             "-" if s["bits_per_byte"] is None else f"{s['bits_per_byte']:.3f}"]
            for name, s in scores.items()
        ]  # fmt: skip
        lines += table((title, "documents", "loss", "bits/byte"), rows, indent=2) if rows else []
    return lines


def eval_scores(summary: dict[str, Any]) -> dict[str, Any]:
    """The texts of `eval`, each followed by its sources, where it has several."""
    scores = {}
    for name, score in (summary.get("eval") or {}).items():
        scores[name] = score
        scores |= {f"{name}: {source}": value for source, value in score["sources"].items()}
    return scores


def product_line(product: dict[str, Any]) -> str:
    """What a product is, in one line."""
    if product["makes"] == "tokenizer":
        cards = product.get("cards", [product["card"]])
        vocab = ", ".join(str(c.get("vocab", c.get("vocab_size"))) for c in cards)
        text = format_bytes(cards[0].get("bytes", 0))
        return f"{product['label']}: {vocab} tokens from {text} of text"
    if product["makes"] == "shards":
        ratio = product["bytes"] / max(1, product["tokens"])
        line = (
            f"{product['label']}: {counted(product['tokens'], 'token')} of"
            f" {counted(product['documents'], 'document')}, {ratio:.2f} bytes a token"
        )
        if val := product.get("val"):
            held = counted(val["documents"], "document")
            line += f"; held out {counted(val['tokens'], 'token')} of {held}"
        return line
    if product["makes"] == "model":
        s = product["summary"]
        bits = s["bits_per_byte"]  # None: nothing says how many bytes the text has
        held = f"{bits:.2f} bits a byte" if bits is not None else f"loss {s['held_out_loss']:.2f}"
        known = [s[name] for name in ("first_loss", "last_loss") if s[name] is not None]
        losses = " -> ".join(f"{loss:.2f}" for loss in known) or "not recorded"
        for name, value in (s.get("held_out_terms") or {}).items():
            held += f", {name.replace('_', ' ')} {value:.3f}"
        return (
            f"{product['label']}: {s['parameters'] / 1e6:.1f} million parameters,"
            f" {counted(s['steps'], 'step')}, loss {losses}, {held} on held-out text"
        )
    if product["makes"] == "language_model":
        card = product["card"]
        right = card["held_out"]["accuracy"]
        measured = (
            "nothing held out" if right is None else f"{format_percent(right, 2)} of held-out right"
        )
        return (
            f"{product['label']}: {counted(len(card['labels']), 'label')},"
            f" {counted(card['lines']['train'], 'line')},"
            f" {format_bytes(card['bytes'])}, {measured}"
        )
    if product["makes"] == "perplexity_model":
        card = product["card"]
        return (
            f"{product['label']}: {counted(sum(card['counts']), 'n-gram')} to order"
            f" {card['order']} over {counted(card['vocabulary'], 'word')}, from"
            f" {counted(card['tokens'], 'word')},"
            f" {format_bytes(card['bytes'])}"
        )
    if product["makes"] == "corpus":
        return (
            f"{product['label']}: {counted(product['documents'], 'document')}"
            f" ({format_bytes(product['bytes'])} of text) in"
            f" {counted(len(product['files']) - 1, 'part')}"
            f" under {product['folder']}/"
        )
    if product["makes"] == "export":
        return (
            f"{product['label']}: {counted(product['documents'], 'document')} in"
            f" {counted(len(product['files']), 'file')} under jsonl/"
        )
    return f"{product['label']}: done"
