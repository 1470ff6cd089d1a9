"""The card of a corpus: its README.md on the hub, from the record of the run alone.

What stands in a corpus or a recipe is shown so that no character of it is Markdown.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from curate.run.funnel import reasons, rows
from curate.run.homes import Corpus
from llmcurate.base.disk.database import paths_literal, scratch_database
from llmcurate.base.disk.units import counted, format_bytes
from tokenize_kit.card.page import code_span, table

MOST_ROWS = 20
LICENCES = ("license", "licence")  # columns that may say it
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:_[A-Z][a-z]{3})?", re.ASCII)  # `en`, `eng_Latn`


def metadata(record: dict[str, Any], corpus: Corpus) -> dict[str, Any]:
    """The metadata of a corpus that the hub reads: languages by ISO 639, and what loads."""
    configs = [{"config_name": "corpus", "data_files": "corpus/*.parquet", "default": True}]
    if corpus.gone:
        configs.append({"config_name": "rejected", "data_files": "rejected/*.parquet"})
    kept = [label for label, n in _languages(record) if n["kept"]]
    codes = dict.fromkeys(match[1] for label in kept if (match := _LANGUAGE.fullmatch(label)))
    return {
        "language": list(codes) or None,
        "task_categories": ["text-generation"],
        "configs": configs,
    }


def text(title: str, record: dict[str, Any], corpus: Corpus) -> str:
    """The card of a corpus but for its metadata."""
    totals = record["totals"]
    languages = [
        (code_span(label), f"{n['kept']:,}", f"{n['rejected']:,}")
        for label, n in _languages(record)[:MOST_ROWS]
    ]
    parts = [
        f"# {title}",
        f"{counted(totals['kept'], 'document')} ({format_bytes(totals['bytes_out'])} of text), kept"
        f" of {counted(totals['read'], 'document')} that were read. Every other one is in the"
        " config `rejected`, with the rules that dropped it.",
        code_span(record["description"]) if record.get("description") else "",
        "A document has `id`, `text`, `url`, `date`, `source` and `lang`; the other columns,"
        " `STEP.MEASURE`, are what the steps of the recipe measured. A rejected one has the step"
        " and rule that dropped it first, and all of its `reasons`.",
        "## How it was made",
        f"By [the recipe](recipe.yaml) {code_span(record['recipe'])} and llmcurate"
        f" {record['versions']['llmcurate']}, as plan {record['plan']}. All figures are in"
        " `run.json`, and in `report.html`.",
        _funnel(record),
        *(f"Not counted here: {code_span(note)}." for note in corpus.notes),
        table(("language", "kept", "rejected"), languages) if languages else "",
        "## Sources and licences",
        _sources(record),
        _licences(corpus),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _languages(record: dict[str, Any]) -> list[tuple[str, dict[str, int]]]:
    """Label and {"kept": n, "rejected": n}, the most documents first."""
    languages: dict[str, dict[str, int]] = (record.get("figures") or {}).get("languages") or {}
    return sorted(languages.items(), key=lambda item: (-item[1]["kept"], item[0]))


def _funnel(record: dict[str, Any]) -> str:
    cells = [
        (code_span(row.step), f"{row.before:,}", f"{row.dropped:,}", f"{row.after:,}",
         reasons(row, 5))
        for row in rows(record)
    ]  # fmt: skip
    return table(("step", "in", "dropped", "out", "reasons"), cells) if cells else ""


def _sources(record: dict[str, Any]) -> str:
    """The inputs: URLs as they are, files of a machine by name."""
    paths = [file["path"] for file in record["inputs"]]
    shown = list(dict.fromkeys(p if "://" in p else PurePosixPath(p).name for p in paths))
    lines = [f"- {code_span(name)}" for name in shown[:MOST_ROWS]]
    if len(shown) > MOST_ROWS:
        lines.append(f"- and {len(shown) - MOST_ROWS:,} more, in `run.json`")
    return "\n".join(lines)


def _licences(corpus: Corpus) -> str:
    """Licences that documents state, by documents."""
    import pyarrow.parquet as pq

    stay = "Texts stay under the terms of their sources."
    names = pq.read_schema(corpus.kept[0]).names
    column = next((name for name in LICENCES if name in names), None)
    if column is None:
        return f"No source stated a licence. {stay}"
    with scratch_database(corpus.out / ".spill-card") as db:
        stated = db.execute(
            f"""SELECT coalesce(nullif({column}::VARCHAR, ''), 'not stated') AS name, count(*) AS n
            FROM read_parquet({paths_literal(corpus.kept)})
            GROUP BY name ORDER BY n DESC, name LIMIT {MOST_ROWS}"""
        ).fetchall()
    cells = [(code_span(name), f"{n:,}") for name, n in stated]
    return f"{stay}\n\n{table(('licence, as the source states it', 'documents'), cells)}"
