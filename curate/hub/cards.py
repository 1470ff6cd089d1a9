"""Cards: the README.md of a repository, with the metadata that the hub reads.

A card is made from the record of the run alone, so the same run has the same card. What stands in a
corpus or a recipe is shown so that no character of it is Markdown.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import yaml

from curate.run.funnel import reasons, rows
from curate.run.homes import Corpus
from llmcurate.base.disk.units import counted, format_bytes
from tokenize_kit.card.page import code_span, table

MOST_SOURCES = 12
MOST_LANGUAGES = 20
MOST_LICENCES = 20
LICENCES = ("license", "licence")  # columns that may say it
_SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"), (10**12, "100B<n<1T"),
)  # fmt: skip
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:_[A-Z][a-z]{3})?", re.ASCII)  # `en`, `eng_Latn`


def data_set(
    name: str, record: dict[str, Any], recipe: str, corpus: Corpus, license: str | None
) -> str:
    """The card of a corpus. name: ORG/NAME; recipe: the text of recipe.yaml."""
    totals = record["totals"]
    languages = _languages(record)
    configs = [{"config_name": "corpus", "data_files": "corpus/*.parquet", "default": True}]
    if corpus.gone:
        configs.append({"config_name": "rejected", "data_files": "rejected/*.parquet"})
    metadata = {
        "language": _codes(languages),
        "license": license,
        "size_categories": [_size(totals["kept"])],
        "task_categories": ["text-generation"],
        "tags": ["llmcurate"],
        "configs": configs,
    }
    title = PurePosixPath(name).name
    parts = [
        f"# {title}",
        f"{counted(totals['kept'], 'document')} ({format_bytes(totals['bytes_out'])} of text), kept"
        f" of {counted(totals['read'], 'document')} that were read. Every other one is in the"
        " config `rejected`, with the rules that dropped it.",
        *([code_span(record["description"])] if record.get("description") else []),
        _loading(name, bool(corpus.gone)),
        "A document has `id`, `text`, `url`, `date`, `source` and `lang`; the other columns,"
        " `STEP.MEASURE`, are what the steps of the recipe measured. A rejected one has the step"
        " and rule that dropped it first, and all of its `reasons`.",
        "## How it was made",
        f"By the recipe {code_span(record['recipe'])} below and llmcurate"
        f" {record['versions']['llmcurate']}. All figures are in `run.json`, and in `report.html`.",
        _funnel(record),
        *([f"Not counted here: {code_span(note)}." for note in corpus.notes]),
        "## Languages",
        _language_table(languages),
        "## Sources and licences",
        _sources(record),
        _licences(corpus, license),
        "## Recipe",
        _fenced(recipe, "yaml"),
        "## Citation",
        _citation(name, title, record),
    ]
    return with_metadata("\n\n".join(filter(None, parts)) + "\n", metadata)


def tokenizer(text: str, license: str | None) -> str:
    """The card of a tokenizer from the text of its own one."""
    tags = {"license": license, "library_name": "transformers", "tags": ["llmcurate", "tokenizer"]}
    return with_metadata(text, tags)


def model(text: str, license: str | None) -> str:
    """The card of a model from the text that its export wrote."""
    metadata = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    return with_metadata(text, metadata | {"license": license, "tags": ["llmcurate"]})


def shards(name: str, product: dict[str, Any], license: str | None) -> str:
    """The card of token shards from the record of their run."""
    text = (
        f"# {PurePosixPath(name).name}\n\n{counted(product['tokens'], 'token')} of"
        f" {counted(product['documents'], 'document')}, as token shards of llmcurate; the tokenizer"
        " lies beside them. `llmcurate pretrain FOLDER` trains on them.\n"
    )
    return with_metadata(text, {"license": license, "tags": ["llmcurate", "token shards"]})


def with_metadata(text: str, metadata: dict[str, Any]) -> str:
    """The text with metadata in front; what it has already stays, what is empty is left out."""
    card_metadata: dict[str, Any] = {}
    if text.startswith("---\n"):
        head, _, rest = text[4:].partition("\n---\n")
        content = yaml.safe_load(head)
        if isinstance(content, dict):
            card_metadata, text = content, rest.lstrip("\n")
    merged = {k: v for k, v in metadata.items() if v} | card_metadata
    return f"---\n{yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)}---\n\n{text}"


def _size(documents: int) -> str:
    return next((name for most, name in _SIZES if documents < most), "n>1T")


def _languages(record: dict[str, Any]) -> dict[str, dict[str, int]]:
    """label -> {"kept": n, "rejected": n}, the most documents first."""
    languages: dict[str, dict[str, int]] = (record.get("figures") or {}).get("languages") or {}
    order = sorted(languages.items(), key=lambda item: (-item[1]["kept"], item[0]))
    return dict(order)


def _codes(languages: dict[str, dict[str, int]]) -> list[str]:
    """ISO 639 codes of the languages that are kept."""
    matches = [_LANGUAGE.fullmatch(label) for label, n in languages.items() if n["kept"]]
    return list(dict.fromkeys(match[1] for match in matches if match))


def _loading(name: str, rejected: bool) -> str:
    lines = ["from datasets import load_dataset", "", f'corpus = load_dataset("{name}")']
    if rejected:
        lines.append(f'rejected = load_dataset("{name}", "rejected")')
    return _fenced("\n".join(lines), "python")


def _funnel(record: dict[str, Any]) -> str:
    cells = [
        (code_span(row.step), f"{row.before:,}", f"{row.dropped:,}", f"{row.after:,}",
         reasons(row, 5))
        for row in rows(record)
    ]  # fmt: skip
    return table(("step", "in", "dropped", "out", "reasons"), cells) if cells else ""


def _language_table(languages: dict[str, dict[str, int]]) -> str:
    if not languages:
        return "No step named the languages of the documents."
    cells = [
        (code_span(label), f"{n['kept']:,}", f"{n['rejected']:,}")
        for label, n in list(languages.items())[:MOST_LANGUAGES]
    ]
    return table(("language", "kept", "rejected"), cells)


def _sources(record: dict[str, Any]) -> str:
    """The inputs: URLs as they are, files of a machine by name."""
    names = [
        path if "://" in path else PurePosixPath(path).name
        for path in (file["path"] for file in record["inputs"])
    ]
    shown = list(dict.fromkeys(names))
    lines = [f"- {code_span(name)}" for name in shown[:MOST_SOURCES]]
    if len(shown) > MOST_SOURCES:
        lines.append(f"- and {len(shown) - MOST_SOURCES:,} more, in `run.json`")
    return "\n".join(["It was read from:", "", *lines]) if lines else ""


def _licences(corpus: Corpus, license: str | None) -> str:
    """What documents themselves state, and what that means for who takes them."""
    counts = _stated(corpus)
    whole = f"The collection is published under `{license}`. " if license else ""
    if not counts:
        return f"{whole}No source stated a licence. Texts stay under the terms of their sources."
    cells = [(code_span(name), f"{n:,}") for name, n in counts.most_common(MOST_LICENCES)]
    lines = table(("licence, as the source states it", "documents"), cells)
    return f"{whole}Texts stay under the terms of their sources.\n\n{lines}"


def _stated(corpus: Corpus) -> Counter[str]:
    """Licences by documents, of the column that says it; empty where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    counts: Counter[str] = Counter()
    for path in corpus.kept:
        with pq.ParquetFile(path) as file:
            column = next((name for name in LICENCES if name in file.schema_arrow.names), None)
            if column is None or not pa.types.is_string(file.schema_arrow.field(column).type):
                return counts
            for batch in file.iter_batches(columns=[column]):
                for entry in pc.value_counts(batch.column(0)).to_pylist():
                    counts[entry["values"] or "not stated"] += entry["counts"]
    return Counter(dict(sorted(counts.items())))  # ties stay in order of name


def _fenced(text: str, language: str) -> str:
    """Code as a block that nothing in it ends."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _citation(name: str, title: str, record: dict[str, Any]) -> str:
    key = re.sub(r"[^A-Za-z0-9]+", "-", name)
    version = record["versions"]["llmcurate"]
    entry = (
        f"@misc{{{key},\n"
        f"  title = {{{{{title}}}}},\n"
        f"  howpublished = {{Hugging Face, data set {name}}},\n"
        f"  note = {{made with llmcurate {version}, plan {record['plan']}}}\n"
        "}"
    )
    return _fenced(entry, "bibtex")
