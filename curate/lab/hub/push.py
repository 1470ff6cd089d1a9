"""Push of a folder to the Hugging Face hub: one commit of all differences, so that no push is
partial.

`Contents` has the repository's type, files and card (its README.md). Text from a corpus or a recipe
is escaped in a card, so that none of it is Markdown.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from curate.corpus.manifests import manifest_path
from curate.fetch.download import forbid_offline
from curate.fetch.hub import hub_error
from curate.run.homes import Corpus, corpus_of
from curate.run.records import funnel_rows, read_record, reasons, stages_of
from llmcurate.base.disk.database import paths_literal, scratch_database
from llmcurate.base.disk.files import path_inside, paths_inside
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import BESIDE
from tokenize_kit.card import code_span, table

RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")
OF_ONE_RUN = ("corpus.json", "rejected.json", "decisions.parquet")
CARD = "README.md"
MOST_ROWS = 20
LICENCES = ("license", "licence")  # columns that may hold the licence
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:_[A-Z][a-z]{3})?", re.ASCII)  # `en`, `eng_Latn`


@dataclass(frozen=True)
class Contents:
    """The contents that a repository on the hub is to have."""

    type: str  # model or dataset
    files: dict[str, Path]  # path in the repository -> path on this machine
    card: str  # text of README.md, with or without metadata
    metadata: dict[str, Any] = field(default_factory=dict)  # defaults for the card's metadata
    own: tuple[str, ...] = ()  # folders in which a push deletes other files


def contents_of(out: Path, name: str, kind: str | None) -> Contents:
    """Return the contents of the folder `out` for a repository of the kind `kind`. If `kind` is
    None, the first of KINDS that the folder holds is used. Raises UsageError if the folder holds no
    such kind."""
    title = PurePosixPath(name).name
    for name_of_kind, make in KINDS.items():
        if kind in (None, name_of_kind) and (contents := make(out, title)) is not None:
            return contents
    missing = f"no {kind}" if kind else f"none of {', '.join(KINDS)}"
    raise UsageError(f"{out} holds {missing}: give the folder of a finished run or of a model")


def _corpus(out: Path, title: str) -> Contents | None:
    if not manifest_path(out / "corpus").exists() and not (out / "current").is_dir():
        return None
    corpus = corpus_of(out)
    if not (corpus.run / "run.json").exists() or not corpus.kept:
        return None
    names = RECORDS if corpus.is_home else (*RECORDS, *OF_ONE_RUN)
    files = {name: corpus.run / name for name in names if (corpus.run / name).exists()}
    files |= {f"corpus/{path.name}": path for path in corpus.kept}
    for path in corpus.gone:  # all runs of a HOME use the same names
        run = f"{path.parent.parent.name}-" if corpus.is_home else ""
        files[f"rejected/{run}{path.name}"] = path
    card = _Card(corpus.record(), corpus)
    return Contents("dataset", files, card.text(title), card.metadata(), ("corpus", "rejected"))


def _model(out: Path, title: str) -> Contents | None:
    if not (out / "config.json").exists() or not any(out.glob("*.safetensors")):
        return None
    files = {p.name: p for p in sorted(out.iterdir()) if p.is_file() and p.name[0] != "."}
    written = files.pop(CARD, None)
    return Contents("model", files, _text(written, title))


def _tokenizer(out: Path, title: str) -> Contents | None:
    _, files = _product(out, "tokenizer")
    if not files:  # converted, extended or pruned, and not made by a run
        names = ("tokenizer*", *BESIDE)
        files = {p.name: p for pattern in names for p in sorted(out.glob(pattern)) if p.is_file()}
    about = next((path for file, path in files.items() if file.endswith("_card.md")), None)
    if "tokenizer.json" not in files and about is None:
        return None
    return Contents("model", files, _text(about, title), {"library_name": "transformers"})


def _shards(out: Path, title: str) -> Contents | None:
    product, files = _product(out, "shards")
    if not product:
        return None
    card = (
        f"# {title}\n\n{counted(product['tokens'], 'token')} of"
        f" {counted(product['documents'], 'document')}, as token shards of llmcurate, with their"
        " tokenizer. `llmcurate pretrain FOLDER` trains on them.\n"
    )
    return Contents("dataset", files, card)


def _text(card: Path | None, title: str) -> str:
    return card.read_text(encoding="utf-8-sig") if card else f"# {title}\n"


KINDS: dict[str, Callable[[Path, str], Contents | None]] = {
    "corpus": _corpus,
    "model": _model,
    "tokenizer": _tokenizer,
    "shards": _shards,
}


def _product(out: Path, kind: str) -> tuple[dict[str, Any], dict[str, Path]]:
    products = read_record(out)["products"] if (out / "run.json").exists() else []
    product = next((p for p in reversed(products) if p["makes"] == kind), None)
    paths = paths_inside(out, product["files"] if product else [], out / "run.json")
    return product or {}, {p.relative_to(out).as_posix(): p for p in paths if p.is_file()}


@dataclass(frozen=True)
class Pushed:
    url: str
    commit: str
    files: int


def push(
    out: Path,
    name: str,
    kind: str | None = None,
    public: bool = False,
    license: str | None = None,
    quiet: bool = False,
) -> Pushed:
    """Push `out` to the repository ORG/NAME. If there is no such repository, create it, public or
    private. `kind` is one of KINDS, or None for the first that `out` holds. `license` is the
    licence's name on the hub. Raises UsageError if there is nothing to push, and RunFailed if the
    hub fails."""
    if name.count("/") != 1:
        raise UsageError(f"REPO {name}: write ORG/NAME, with a user or an organisation as ORG")
    contents = contents_of(out, name, kind)
    for path in contents.files.values():
        path_inside(out, path.relative_to(out).as_posix(), out)  # refuse links that lead outside
    forbid_offline(f"hf://{name}")
    try:
        return _push(contents, name, public, license, quiet)
    except Exception as error:
        raise hub_error(f"push to {name}", error) from None


def _push(contents: Contents, name: str, public: bool, license: str | None, quiet: bool) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoCard
    from huggingface_hub.utils import disable_progress_bars

    if quiet or not sys.stderr.isatty():
        disable_progress_bars()
    own = contents.card
    card = RepoCard(own if own.startswith("---\n") else f"---\n\n---\n\n{own}")
    for key, value in {"license": license, "tags": ["llmcurate"], **contents.metadata}.items():
        card.data[key] = card.data.get(key, value)
    files: dict[str, bytes | Path] = {CARD: str(card).encode(), **contents.files}
    api, kind = HfApi(), contents.type
    url = str(api.create_repo(name, repo_type=kind, private=not public, exist_ok=True))
    head = api.repo_info(name, repo_type=kind).sha
    remote_files = api.list_repo_files(name, revision=head, repo_type=kind)
    outdated = [p for p in remote_files if p not in files and p.partition("/")[0] in contents.own]
    done = api.create_commit(  # uploads only files that differ
        name,
        [
            *(CommitOperationAdd(path, file) for path, file in files.items()),
            *(CommitOperationDelete(path) for path in outdated),
        ],
        commit_message="Push by llmcurate",
        repo_type=kind,
        parent_commit=head,
    )
    return Pushed(url, done.oid, len(files))


@dataclass(frozen=True)
class _Card:
    record: dict[str, Any]
    corpus: Corpus

    def metadata(self) -> dict[str, Any]:
        configs = [{"config_name": "corpus", "data_files": "corpus/*.parquet", "default": True}]
        if self.corpus.gone:
            configs.append({"config_name": "rejected", "data_files": "rejected/*.parquet"})
        kept = [label for label, n in self._languages() if n["kept"]]
        codes = dict.fromkeys(match[1] for label in kept if (match := _LANGUAGE.fullmatch(label)))
        return {
            "language": list(codes) or None,
            "task_categories": ["text-generation"],
            "configs": configs,
        }

    def text(self, title: str) -> str:
        totals = self.record["totals"]
        languages = [
            (code_span(label), f"{n['kept']:,}", f"{n['rejected']:,}")
            for label, n in self._languages()[:MOST_ROWS]
        ]
        parts = [
            f"# {title}",
            f"{counted(totals['kept'], 'document')} ({format_bytes(totals['bytes_out'])} of text),"
            f" kept of {counted(totals['read'], 'document')} that were read. All others are in"
            " the config `rejected`, with the rules that dropped them.",
            code_span(self.record["description"]) if self.record.get("description") else "",
            "A document has `id`, `text`, `url`, `date`, `source` and `lang`; the other columns,"
            " `STEP.MEASURE`, are measures of the recipe's steps. A rejected document also has the"
            " step and rule that dropped it first, and all `reasons`.",
            "## How it was made",
            f"By [the recipe](recipe.yaml) {code_span(self.record['recipe'])} and llmcurate"
            f" {self.record['versions']['llmcurate']}, as plan {self.record['plan']}. All figures"
            " are in `run.json`, and in `report.html`.",
            self._funnel(),
            *(f"Not counted here: {code_span(note)}." for note in self.corpus.notes),
            table(("language", "kept", "rejected"), languages) if languages else "",
            "## Sources and licences",
            self._sources(),
            self._licences(),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _languages(self) -> list[tuple[str, dict[str, int]]]:
        figures = self.record.get("figures") or {}
        languages: dict[str, dict[str, int]] = figures.get("languages") or {}
        return sorted(languages.items(), key=lambda item: (-item[1]["kept"], item[0]))

    def _funnel(self) -> str:
        cells = [
            (code_span(row.step), f"{row.before:,}", f"{row.dropped:,}", f"{row.after:,}",
             reasons(row, 5))
            for row in funnel_rows(stages_of(self.record))
        ]  # fmt: skip
        return table(("step", "in", "dropped", "out", "reasons"), cells) if cells else ""

    def _sources(self) -> str:
        paths = [file["path"] for file in self.record["inputs"]]
        shown = list(dict.fromkeys(p if "://" in p else PurePosixPath(p).name for p in paths))
        lines = [f"- {code_span(name)}" for name in shown[:MOST_ROWS]]
        if len(shown) > MOST_ROWS:
            lines.append(f"- and {len(shown) - MOST_ROWS:,} more, in `run.json`")
        return "\n".join(lines)

    def _licences(self) -> str:
        import pyarrow.parquet as pq

        terms = "Texts remain under the terms of their sources."
        names = pq.read_schema(self.corpus.kept[0]).names
        column = next((name for name in LICENCES if name in names), None)
        if column is None:
            return f"No source stated a licence. {terms}"
        with scratch_database(self.corpus.out / ".spill-card") as db:
            licences = db.execute(
                f"""SELECT coalesce(nullif({column}::VARCHAR, ''), 'not stated') AS name,
                count(*) AS n FROM read_parquet({paths_literal(self.corpus.kept)})
                GROUP BY name ORDER BY n DESC, name LIMIT {MOST_ROWS}"""
            ).fetchall()
        cells = [(code_span(name), f"{n:,}") for name, n in licences]
        return f"{terms}\n\n{table(('licence stated by the source', 'documents'), cells)}"
