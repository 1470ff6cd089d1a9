"""A folder pushed to the hub: one commit of what differs, so that nothing is there by half.

The folder's kind there, a data set or a model, its files and its card are `Contents`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from curate.corpus.manifests import manifest_path
from curate.fetch.download import forbid_offline
from curate.fetch.hub import hub_error
from curate.hub import cards
from curate.run.homes import Corpus, corpus_of
from curate.run.records import read_record
from llmcurate.base.disk.safe_paths import all_inside, inside
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")
OF_ONE_RUN = ("corpus.json", "rejected.json", "decisions.parquet")
CARD = "README.md"


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
    if _record(corpus.run) is None or not corpus.kept:
        return None
    names = RECORDS if corpus.is_home else (*RECORDS, *OF_ONE_RUN)
    files = {name: corpus.run / name for name in names if (corpus.run / name).exists()}
    files |= {f"corpus/{path.name}": path for path in corpus.kept}
    files |= {f"rejected/{_name_of(path, corpus)}": path for path in corpus.gone}
    record = corpus.record()
    card, metadata = cards.text(title, record, corpus), cards.metadata(record, corpus)
    return Contents("dataset", files, card, metadata, ("corpus", "rejected"))


def _name_of(path: Path, corpus: Corpus) -> str:
    """Of a file of rejected documents: runs of a HOME number theirs alike."""
    return f"{path.parent.parent.name}-{path.name}" if corpus.is_home else path.name


def _model(out: Path, title: str) -> Contents | None:
    if not (out / "config.json").exists() or not any(out.glob("*.safetensors")):
        return None
    files = {p.name: p for p in sorted(out.iterdir()) if p.is_file() and p.name[0] != "."}
    written = files.pop(CARD, None)
    return Contents("model", files, _text(written, title))


def _tokenizer(out: Path, title: str) -> Contents | None:
    product = _product(out, "tokenizer")
    files = _files(out, product) if product else {}
    if not files:  # converted, extended or pruned: no run made it
        names = ("tokenizer*", "special_tokens_map.json")
        files = {p.name: p for pattern in names for p in sorted(out.glob(pattern)) if p.is_file()}
    about = next((path for file, path in files.items() if file.endswith("_card.md")), None)
    if "tokenizer.json" not in files and about is None:
        return None
    return Contents("model", files, _text(about, title), {"library_name": "transformers"})


def _shards(out: Path, title: str) -> Contents | None:
    product = _product(out, "shards")
    if product is None:
        return None
    card = (
        f"# {title}\n\n{counted(product['tokens'], 'token')} of"
        f" {counted(product['documents'], 'document')}, as token shards of llmcurate; the tokenizer"
        " lies beside them. `llmcurate pretrain FOLDER` trains on them.\n"
    )
    return Contents("dataset", _files(out, product), card)


def _text(card: Path | None, title: str) -> str:
    return card.read_text(encoding="utf-8") if card else f"# {title}\n"


KINDS: dict[str, Callable[[Path, str], Contents | None]] = {
    "corpus": _corpus,
    "model": _model,
    "tokenizer": _tokenizer,
    "shards": _shards,
}


def _record(run: Path) -> dict[str, Any] | None:
    """run.json, where there is one."""
    return read_record(run) if (run / "run.json").exists() else None


def _product(out: Path, makes: str) -> dict[str, Any] | None:
    """The record of what a run made, the last one of its kind."""
    products = (_record(out) or {}).get("products", [])
    return next((p for p in reversed(products) if p["makes"] == makes), None)


def _files(out: Path, product: dict[str, Any]) -> dict[str, Path]:
    """The files of a product, of which all are there."""
    paths = all_inside(out, product["files"], out / "run.json")
    return {path.relative_to(out).as_posix(): path for path in paths if path.is_file()}


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
    files: dict[str, Any] = {CARD: str(card).encode(), **contents.files}
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
