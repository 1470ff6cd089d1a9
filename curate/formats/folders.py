"""Kinds of folders, recognised by the files in them, and the commands that read each kind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from curate.formats.kinds import format_by_name
from llmcurate.base.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """A kind of folder. `what` is its name with an article. A folder is of this kind if it has a
    file that matches a pattern in `marks`. The text `use` says which command reads such a folder;
    {} stands for this folder. The text `made` says which commands make such a folder from a folder
    of documents; {} stands for the folder of documents."""

    what: str
    marks: tuple[str, ...]
    use: str = ""
    made: str = ""


KINDS = {
    "home": Kind("the HOME of a refresh", ("refresh.db",)),
    "run": Kind(
        "the OUT of a run on documents",
        ("run.json", "corpus.json"),
        made="`llmcurate run RECIPE {} -o OUT` makes a run of it",
    ),
    "model": Kind(
        "a trained model",
        ("checkpoints/step-*", "train.json"),
        "`llmcurate generate --model {}` uses it, and `llmcurate export {} -o OUT` writes it for"
        " transformers",
        "`llmcurate tokenizer encode {} --tokenizer TOKENIZER -o SHARDS` and `llmcurate pretrain"
        " SHARDS -o MODEL` train one on it",
    ),
    "checkpoint": Kind("a checkpoint of a trained model", ("optimizer.safetensors",)),
    "transformers": Kind(
        "a model of transformers",
        ("model*.safetensors", "pytorch_model*.bin"),
        "`llmcurate import {} -o MODEL` makes a trained model of it",
        "`save_pretrained` of transformers writes one",
    ),
    "shards": Kind(
        "token shards",
        (
            *("tokens-*.bin", "train.bin", "*_train_*.bin", "*.idx", "*.ds", "*.npy"),
            *("chunk-*.bin", "train/chunk-*.bin", "*.mds*", "train/*.mds*"),
        ),
        "`llmcurate pretrain {} -o MODEL` trains a model on them",
        "`llmcurate tokenizer encode {} --tokenizer TOKENIZER -o SHARDS` makes them of it",
    ),
    "tokenizer": Kind(
        "a tokenizer",
        ("tokenizer.json", "tokenizer.model"),
        "`llmcurate tokenizer encode IN... --tokenizer {} -o SHARDS` encodes documents with it",
    ),
    "workspace": Kind("a workspace", ("llmcurate.yaml",), "work in it: `cd {}`"),
    "documents": Kind("a folder of documents", ()),
}
MOST_SEARCHED = 1000  # paths below a folder of another kind
OF_DOCUMENTS = ("run", "home", "documents")  # kinds that readers of documents accept


def kinds_of(folder: Path) -> list[str]:
    """Return the kinds of a local folder (`run` or `documents`, say), the most specific first."""
    kinds = [name for name, kind in KINDS.items() if any(any(folder.glob(m)) for m in kind.marks)]
    if "checkpoint" in kinds:
        return ["checkpoint"]
    if kinds in ([], ["tokenizer"]):  # other kinds hold such files too
        _, _, files = next(os.walk(folder), ("", [], []))
        own = (".json", ".txt", ".md") if kinds else ()
        kinds += ["documents"] * any(format_by_name(f) for f in files if not f.endswith(own))
    return kinds


def require_kind(folder: Path | None, *wanted: str, shown: str = "") -> Path | None:
    """Return the folder if it is of a `wanted` kind or of no known kind. Otherwise raise
    UsageError, which names a fitting folder or the command to run. `shown` is the folder's name in
    messages."""
    kinds = kinds_of(folder) if folder is not None else []
    if folder is None or not kinds or not set(wanted).isdisjoint(kinds):
        return folder
    kind, first, shown = KINDS[kinds[0]], KINDS[wanted[0]], shown or str(folder)
    below = [*sorted(folder.glob("*"), reverse=True), *sorted(folder.glob("*/*"), reverse=True)]
    below = [path for path in below[:MOST_SEARCHED] if path.is_dir() and path.name[0] != "."]
    near = (*folder.absolute().parents[:2], *below)
    fitting = [path for path in near if ({*wanted} - {"documents"}) & {*kinds_of(path)}]
    advice = kind.use.replace("{}", quote(shown))
    if fitting:
        advice = f"name {os.path.relpath(fitting[0])}"
    elif first.made and kinds[0] in OF_DOCUMENTS:
        advice = first.made.replace("{}", quote(shown))
    raise UsageError(f"{shown} is {kind.what}, not {first.what}" + (advice and f": {advice}"))
