"""What a folder is on the hub: a data set or a model, the files of it, its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.corpus.manifests import manifest_path
from curate.hub import cards
from curate.run.homes import Corpus, corpus_of
from curate.run.records import read_record
from llmcurate.base.disk.safe_paths import all_inside
from llmcurate.base.errors import UsageError

RECORDS = ("run.json", "recipe.yaml", "report.html", "corrupt.jsonl")
CARD = "README.md"


@dataclass(frozen=True)
class Contents:
    """type: of the repository; files: path there -> path here; own: folders there that hold nothing
    else, so that what an earlier push left in them goes; card: the text of README.md."""

    type: str
    files: dict[str, Path]
    card: str
    own: tuple[str, ...] = ()


def contents_of(out: Path, name: str, kind: str | None, license: str | None) -> Contents:
    """What `out` is, or of the kind asked for, as the repository `name`. license: of the hub's
    names. UsageError where it is nothing that is pushed."""
    for name_of_kind, make in KINDS.items():
        if kind in (None, name_of_kind) and (contents := make(out, name, license)) is not None:
            return contents
    missing = f"no {kind}" if kind else f"none of {', '.join(KINDS)}"
    raise UsageError(
        f"{out} holds {missing} that is finished: give the folder of a run, or of a model"
    )


def _corpus(out: Path, name: str, license: str | None) -> Contents | None:
    if not manifest_path(out / "corpus").exists() and not (out / "current").is_dir():
        return None
    corpus = corpus_of(out)
    record = _record(corpus.run)
    if record is None or not corpus.kept:
        return None
    files = {file: corpus.run / file for file in RECORDS if (corpus.run / file).exists()}
    if not corpus.is_home:
        names = ("corpus.json", "rejected.json", "decisions.parquet")
        files |= {file: out / file for file in names if (out / file).exists()}
    files |= {f"corpus/{path.name}": path for path in corpus.kept}
    files |= {f"rejected/{_name_of(path, corpus)}": path for path in corpus.gone}
    recipe = (corpus.run / "recipe.yaml").read_text(encoding="utf-8")
    card = cards.data_set(name, corpus.record(), recipe, corpus, license)
    return Contents("dataset", files, card, ("corpus", "rejected"))


def _name_of(path: Path, corpus: Corpus) -> str:
    """Of a file of rejected documents: runs of a HOME number theirs alike."""
    return f"{path.parent.parent.name}-{path.name}" if corpus.is_home else path.name


def _model(out: Path, name: str, license: str | None) -> Contents | None:
    if not (out / "config.json").exists() or not any(out.glob("*.safetensors")):
        return None
    files = {p.name: p for p in sorted(out.iterdir()) if p.is_file() and p.name[0] != "."}
    written = files.pop(CARD, None)
    text = written.read_text(encoding="utf-8") if written else f"# {name}\n"
    return Contents("model", files, cards.model(text, license))


def _tokenizer(out: Path, name: str, license: str | None) -> Contents | None:
    product = _product(out, "tokenizer")
    files = _files(out, product) if product else {}
    if not files:  # converted, extended or pruned: no run made it
        names = ("tokenizer*", "special_tokens_map.json")
        files = {p.name: p for pattern in names for p in sorted(out.glob(pattern)) if p.is_file()}
    about = next((path for file, path in files.items() if file.endswith("_card.md")), None)
    if "tokenizer.json" not in files and about is None:
        return None
    text = about.read_text(encoding="utf-8") if about else f"# {name}\n"
    return Contents("model", files, cards.tokenizer(text, license))


def _shards(out: Path, name: str, license: str | None) -> Contents | None:
    product = _product(out, "shards")
    if product is None:
        return None
    return Contents("dataset", _files(out, product), cards.shards(name, product, license))


KINDS: dict[str, Callable[[Path, str, str | None], Contents | None]] = {
    "corpus": _corpus,
    "model": _model,
    "tokenizer": _tokenizer,
    "shards": _shards,
}


def _record(run: Path) -> dict[str, Any] | None:
    """run.json, where there is one."""
    try:
        return read_record(run)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{run / 'run.json'} cannot be read ({error})") from None


def _product(out: Path, makes: str) -> dict[str, Any] | None:
    """The record of what a run made, the last one of its kind."""
    products = (_record(out) or {}).get("products", [])
    return next((p for p in reversed(products) if p["makes"] == makes), None)


def _files(out: Path, product: dict[str, Any]) -> dict[str, Path]:
    """The files of a product, of which all are there."""
    paths = all_inside(out, product["files"], out / "run.json")
    return {path.relative_to(out).as_posix(): path for path in paths if path.is_file()}
