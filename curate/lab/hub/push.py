"""A folder pushed to the hub: one commit of what differs, so that nothing is there by half.

The folder's kind there, a data set or a model, its files and its card are `Contents`. In a card,
what stands in a corpus or a recipe is shown so that no character of it is Markdown.
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
from llmcurate.base.disk.files import all_inside, inside
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import UsageError
from tokenize_kit.card import code_span, table

RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")
OF_ONE_RUN = ("corpus.json", "rejected.json", "decisions.parquet")
CARD = "README.md"
MOST_ROWS = 20
LICENCES = ("license", "licence")  # columns that may say it
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:_[A-Z][a-z]{3})?", re.ASCII)  # `en`, `eng_Latn`


@dataclass(frozen=True)
class Contents:
    """type: of the repository; files: path there -> path here; card: the text of README.md, which
    may begin with metadata; metadata: of the card, where that has none; own: folders there that
    hold nothing else, so that what an earlier push left in them goes."""

    type: str
    files: dict[str, Path]
    card: str
    metadata: dict[str, Any] = field(default_factory=dict)
    own: tuple[str, ...] = ()


def contents_of(out: Path, name: str, kind: str | None) -> Contents:
    """The contents of `out`, of the kind asked for or the first that it is. UsageError where it is
    none of them."""
    title = PurePosixPath(name).name
    for name_of_kind, make in KINDS.items():
        if kind in (None, name_of_kind) and (contents := make(out, title)) is not None:
            return contents
    missing = f"no {kind}" if kind else f"none of {', '.join(KINDS)}"
    raise UsageError(
        f"{out} holds {missing} that is finished: give the folder of a run, or of a model"
    )


def _corpus(out: Path, title: str) -> Contents | None:
    if not manifest_path(out / "corpus").exists() and not (out / "current").is_dir():
        return None
    corpus = corpus_of(out)
    if not (corpus.run / "run.json").exists() or not corpus.kept:
        return None
    names = RECORDS if corpus.is_home else (*RECORDS, *OF_ONE_RUN)
    files = {name: corpus.run / name for name in names if (corpus.run / name).exists()}
    files |= {f"corpus/{path.name}": path for path in corpus.kept}
    for path in corpus.gone:  # runs of a HOME number theirs alike
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
    if not files:  # converted, extended or pruned: no run made it
        names = ("tokenizer*", "special_tokens_map.json")
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
        f" {counted(product['documents'], 'document')}, as token shards of llmcurate; the tokenizer"
        " lies beside them. `llmcurate pretrain FOLDER` trains on them.\n"
    )
    return Contents("dataset", files, card)


def _text(card: Path | None, title: str) -> str:
    return card.read_text(encoding="utf-8") if card else f"# {title}\n"


KINDS: dict[str, Callable[[Path, str], Contents | None]] = {
    "corpus": _corpus,
    "model": _model,
    "tokenizer": _tokenizer,
    "shards": _shards,
}


def _product(out: Path, makes: str) -> tuple[dict[str, Any], dict[str, Path]]:
    """The record of what a run made, the last one of its kind, and its files that are there; both
    empty where it made none."""
    products = read_record(out)["products"] if (out / "run.json").exists() else []
    product = next((p for p in reversed(products) if p["makes"] == makes), None)
    paths = all_inside(out, product["files"] if product else [], out / "run.json")
    return product or {}, {p.relative_to(out).as_posix(): p for p in paths if p.is_file()}


@dataclass(frozen=True)
class Pushed:
    """url: of the repository; commit: its newest one; files: that it holds of the folder."""

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
    """Pushes what `out` holds to the repository ORG/NAME, which is made where it is not there.

    kind: one of KINDS, where the folder is several things; public: whether a new repository is;
    license: of the hub's names. UsageError where there is nothing to push, RunFailed where the hub
    refuses or does not answer.
    """
    if name.count("/") != 1:
        raise UsageError(f"REPO {name}: write ORG/NAME, with a user or an organisation in front")
    contents = contents_of(out, name, kind)
    for path in contents.files.values():
        inside(out, path.relative_to(out).as_posix(), out)  # no link leads to a file elsewhere
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
    there = api.list_repo_files(name, revision=head, repo_type=kind)
    gone = [p for p in there if p not in files and p.partition("/")[0] in contents.own]
    done = api.create_commit(  # of those that differ
        name,
        [
            *(CommitOperationAdd(path, file) for path, file in files.items()),
            *(CommitOperationDelete(path) for path in gone),
        ],
        commit_message="Push by llmcurate",
        repo_type=kind,
        parent_commit=head,
    )
    return Pushed(url, done.oid, len(files))


@dataclass(frozen=True)
class _Card:
    """The card of a corpus, from the record of its run."""

    record: dict[str, Any]
    corpus: Corpus

    def metadata(self) -> dict[str, Any]:
        """The metadata of a corpus that the hub reads: languages by ISO 639, and what loads."""
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
        """The card of a corpus but for its metadata."""
        totals = self.record["totals"]
        languages = [
            (code_span(label), f"{n['kept']:,}", f"{n['rejected']:,}")
            for label, n in self._languages()[:MOST_ROWS]
        ]
        parts = [
            f"# {title}",
            f"{counted(totals['kept'], 'document')} ({format_bytes(totals['bytes_out'])} of text),"
            f" kept of {counted(totals['read'], 'document')} that were read. Every other one is in"
            " the config `rejected`, with the rules that dropped it.",
            code_span(self.record["description"]) if self.record.get("description") else "",
            "A document has `id`, `text`, `url`, `date`, `source` and `lang`; the other columns,"
            " `STEP.MEASURE`, are what the steps of the recipe measured. A rejected one has the"
            " step and rule that dropped it first, and all of its `reasons`.",
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

        stay = "Texts stay under the terms of their sources."
        names = pq.read_schema(self.corpus.kept[0]).names
        column = next((name for name in LICENCES if name in names), None)
        if column is None:
            return f"No source stated a licence. {stay}"
        with scratch_database(self.corpus.out / ".spill-card") as db:
            stated = db.execute(
                f"""SELECT coalesce(nullif({column}::VARCHAR, ''), 'not stated') AS name,
                count(*) AS n FROM read_parquet({paths_literal(self.corpus.kept)})
                GROUP BY name ORDER BY n DESC, name LIMIT {MOST_ROWS}"""
            ).fetchall()
        cells = [(code_span(name), f"{n:,}") for name, n in stated]
        return f"{stay}\n\n{table(('licence, as the source states it', 'documents'), cells)}"
