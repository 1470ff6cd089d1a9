"""The page's end: products, notices, corrupt input, files, settings and versions, terms."""

from __future__ import annotations

from typing import Any

import yaml

from curate.inspect.report.page_training import training
from curate.pages.html import count, details, lead, name, section, shown, table
from curate.run import funnel
from curate.run.funnel import amount

MOST_FILES = 50
MOST_NOTICES = 50
MOST_CORRUPT = 20
MOST_SETTINGS = 20_000
TERMS = {
    "document": "one page, article or row of the input: what is kept or dropped as a whole",
    "step": "one stop of the recipe: it measures documents, drops some, or cleans their text",
    "rule": "one reason for which a step drops documents, with a value and a limit",
    "limit": "the value from which on a rule drops; also called threshold",
    "stage": "steps that run in one pass over the documents",
    "token": "a piece of a word that a language model reads as one unit",
    "cluster": "documents that are copies of each other, directly or through others",
    "bits a byte": "how much the model is surprised by a byte of text it never saw; less is better",
}


def products(record: dict[str, Any]) -> tuple[str, str, str]:
    """Tokenizer, shards, model: figures, the training curve, a sample."""
    parts = []
    for product in record["products"]:
        parts.append(f"<h3>{name(product['label'])}</h3>")
        parts.append(f"<p>{shown(funnel.product_line(product))}.</p>")
        parts += [f"<p class=note>{shown(w)}</p>" for w in product.get("warnings", [])]
        if product["makes"] == "tokenizer":
            for card in product.get("cards", [product["card"]]):
                names = ("algorithm", "vocab", "pattern", "digits", "documents", "bytes")
                parts.append(_pairs({n: v for n, v in card.items() if v is not None}, names))
        elif product["makes"] == "shards":
            parts.append(_pairs(product, ("documents", "tokens", "bytes", "vocab_size", "dtype")))
        elif product["makes"] == "model":
            parts.append(training(product))
    return section("products", "Products", *parts)


def _pairs(values: dict[str, Any], names: tuple[str, ...]) -> str:
    found = [(n.replace("_", " "), values[n]) for n in names if n in values]
    cells = "".join(
        f"<dt>{n}</dt><dd>{count(v) if isinstance(v, int) else shown(v)}</dd>" for n, v in found
    )
    if values.get("tokens"):
        cells += f"<dt>bytes a token</dt><dd>{values['bytes'] / values['tokens']:.2f}</dd>"
    return f"<dl>{cells}</dl>"


def notices(record: dict[str, Any]) -> tuple[str, str, str]:
    """What the run had to say."""
    found = record["notices"]
    items = "".join(f"<li>{shown(n)}</li>" for n in found[:MOST_NOTICES])
    more = len(found) - MOST_NOTICES
    rest = f"<p class=note>and {more} more</p>" if more > 0 else ""
    return section("notices", "Notices", f"<ul>{items}</ul>{rest}" if found else "")


def corrupt(record: dict[str, Any]) -> tuple[str, str, str]:
    """What could not be read."""
    tallies = record["stages"][:1] or [p["input"] for p in record["products"] if p.get("input")]
    found = [e for t in tallies[:1] for e in t.get("corrupt_examples", [])]
    if not found:
        return section("corrupt", "Corrupt input")
    total = record["totals"]["corrupt"]
    body = [[name(e["file"]), count(e["offset"]), shown(e["what"])] for e in found[:MOST_CORRUPT]]
    return section(
        "corrupt",
        "Corrupt input",
        lead(
            f"{count(total)} stretches could not be read; reading went on behind them. The first"
            " are listed, all are in <code>corrupt.jsonl</code>."
        ),
        table(["file", "byte", "what is wrong"], body, numbers={1}),
    )


def inputs(record: dict[str, Any]) -> tuple[str, str, str]:
    """The files that were read."""
    files = record["inputs"]
    if not files:
        return section("input", "Input")
    body = [[name(f["path"]), shown(f["format"]), amount(f["bytes"])] for f in files[:MOST_FILES]]
    more = len(files) - MOST_FILES
    rest = f"<p class=note>and {count(more)} more files</p>" if more > 0 else ""
    return section("input", "Input", table(["file", "format", "size"], body, {2}), rest)


def settings(record: dict[str, Any]) -> tuple[str, str, str]:
    """All settings, and the versions of what ran."""
    steps = [{s["name"]: s["settings"]} for s in record.get("steps", [])]
    text = yaml.safe_dump(steps, sort_keys=False, allow_unicode=True, width=88) if steps else ""
    versions = "".join(f"<dt>{shown(k)}</dt><dd>{shown(v)}</dd>" for k, v in _versions(record))
    return section(
        "settings",
        "Settings and versions",
        details("all settings of this run", f"<pre>{shown(text, MOST_SETTINGS)}</pre>")
        if text
        else "",
        f"<dl>{versions}</dl>",
    )


def _versions(record: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*record["versions"].items(), ("plan", record["plan"])]


def terms() -> tuple[str, str, str]:
    """What the page's words mean."""
    cells = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in TERMS.items())
    return section("terms", "Terms", f"<dl>{cells}</dl>")
