"""`llmcurate pretrain`, `generate`, `which`, `import` and `export`: trained models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    RECIPE,
    CommandOptions,
    Inputs,
    Json,
    NewFolder,
    Quiet,
    ReadOptions,
    Sets,
    TrustCode,
    app,
    newest,
    read_changes,
    workspace,
)
from curate.cli.settings import READS_TEXTS, command, run_steps
from curate.products.needs import needs_training
from llmcurate.base.disk.files import read_text, rename_aside
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, print_result, say, suggest, table

if TYPE_CHECKING:
    from curate.run.workspace import Workspace
    from train.generate import Candidate
    from train.measure.step_documents import Step

_SOURCES = re.compile(r"(pretrain\.)?sources=")


def a_model(folder: Path | None) -> Path | None:
    """Return `folder`. Raises UsageError if it is not the folder of a trained model."""
    from curate.formats.folders import require_kind

    return require_kind(folder, "model")


Trained = Annotated[
    Optional[Path],
    typer.Option(
        metavar="PATH",
        callback=a_model,
        help="Folder of a trained model. In a workspace the default is the newest.",
    ),
]


def say_checkpoint(model: Path, which: str, quiet: bool = False, device: str | None = None) -> None:
    """Print which checkpoint of a model is used, unless it is the last one. If the model runs on
    `device`, print also that a Mac's GPU is not used."""
    from train.device import device_notices, pick_device
    from train.runs.checkpoint import choice_line

    notices = [] if device is None else device_notices(pick_device(device), deterministic=True)
    for line in filter(None, (choice_line(model, which), *notices)):
        say(line, quiet)


@command(
    app,
    "pretrain",
    shared=RECIPE,
    reads=READS_TEXTS,
    panel="Train",
    flags={"time": "--for"},
)
def pretrain(
    shards: Annotated[
        Optional[Path],
        typer.Argument(
            help="Folder of token shards, or documents, which are encoded first by a tokenizer"
            " trained on them. In a workspace the default is the newest shards."
        ),
    ] = None,
    task: Annotated[
        Optional[str],
        typer.Option(
            help="Fine-tune a model for this task on a JSONL file given in place of shards:"
            " chat, pairs, classify, token, span or choice."
        ),
    ] = None,
    on: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="[NAME=]PATH",
            help="Evaluation text, documents or token shards. All of it is scored, per source,"
            " each time that held-out text is scored. [repeatable]",
            rich_help_panel="Evaluation",
        ),
    ] = None,
    sets: Sets = None,
    trust_code: TrustCode = False,
    *,
    read: ReadOptions,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Train a language model on token shards or documents.

    Run the same command to resume from the newest checkpoint. In a workspace, shards older than
    their corpus or tokenizer are encoded again first.

    \b
    Example:
    llmcurate pretrain corpus/ -o model --for 30m
    llmcurate pretrain shards/ -o model --tokens 20M
    llmcurate pretrain shards/ -o model --model 124m --steps 200 --lr 0.001 --rows 8
    llmcurate pretrain shards/ -o model --model 30m --set model.attention.window=64
    llmcurate pretrain chats.jsonl -o chat --model model --task chat
    llmcurate pretrain labelled.jsonl -o topics --model model --task classify
    llmcurate pretrain shards/ -o model --on news=news.jsonl --on wiki=wiki/corpus
    """
    import os

    from curate.formats.folders import require_kind
    from curate.products.eval_texts import named_paths

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "torchrun would start this once per process: use --processes N without torchrun,"
            " or torchrun ... -m train SHARDS OUT"
        )
    inputs: list[str] = []
    first: list[tuple[str, dict[str, Any]]] = []
    if shards is not None and task is None and _holds_documents(shards):
        inputs = [str(shards)]
        vocabulary = settings.pop("vocab_size", None) or vocabulary_size(shards)
        first = [("tokenizer", {"vocab": vocabulary}), ("shards", {})]
    elif shards is not None or not any(_SOURCES.match(s) for s in sets or ()):
        folder = shards or _fresh_shards(workspace("SHARDS"), options)
        if options.dry_run and not folder.exists():
            echo(f"pretrain: would then train on the shards in {folder}")
            return
        require_kind(folder, "shards")
        if not folder.exists():
            raise UsageError(f"{folder} does not exist")
        if folder.is_dir() and not any(folder.iterdir()):
            raise UsageError(f"{folder} holds no token shards")
        settings = {**settings, "shards": str(folder)}
    if task is not None:
        settings = {**settings, "objective": task}
    if on:
        settings = {**settings, "eval": named_paths(on)}
    whole = (*(sets or ()), *read_changes(read))
    options = replace(options, allow_python=True)  # the user named the code on the command line
    run_steps("pretrain", [*first, ("pretrain", settings)], inputs, options, whole)


def _holds_documents(path: Path) -> bool:
    """Return True if the path is a document file, or a folder of documents without a folder of
    token shards in it."""
    from curate.formats.folders import OF_DOCUMENTS, kinds_of
    from curate.formats.kinds import format_by_name

    if path.is_file():
        return format_by_name(path.name) is not None
    encoded = any("shards" in kinds_of(folder) for folder in (path, *path.glob("*/")))
    return not encoded and kinds_of(path)[:1] in [[kind] for kind in OF_DOCUMENTS]


def vocabulary_size(corpus: Path) -> int:
    """Return the vocabulary size in tokens for a corpus, by the bytes of its files: 4,096 below 10
    MB, twice as many for each further factor of 10, and at most 32,768."""
    whole = corpus / "corpus" if (corpus / "corpus").is_dir() else corpus
    files = whole.rglob("*") if whole.is_dir() else [whole]
    size = sum(path.stat().st_size for path in files if path.is_file())
    return min(32_768, 4096 * 2 ** max(0, len(str(size // 1_000_000)) - 1))


def _fresh_shards(space: Workspace, options: CommandOptions) -> Path:
    from curate.cli.tokenizer import encode

    shards, corpus = space.newest("shards"), space.newest("corpus")
    tokenizer = space.newest("tokenizer")
    newer = [
        f"{kind} of run {run[0]}"
        for kind, run in (("corpus", corpus), ("tokenizer", tokenizer))
        if run and (shards is None or run[0] > shards[0])
    ]
    if shards and (not newer or corpus is None or tokenizer is None):
        return shards[1]
    source, vocabulary = space.need("corpus"), space.need("tokenizer")
    say(f"encoding first: the {' and the '.join(newer)} has no shards yet", options.quiet)
    return encode(vocabulary, [str(source)], replace(options, out=None, as_json=False)).out


@command(app, "Generate", panel="Train")
def generate(
    beginnings: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="PROMPT...", help="Texts to continue. The default is a new text."),
    ] = None,
    model: Trained = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Continue texts with a trained model, or fill in masked tokens.

    \b
    Example:
    llmcurate generate "The river" "In spring" --model model --top-p 0.9 --top-k 0
    llmcurate generate "Where do otters live?" --model chat --chat --system "Be brief."
    llmcurate generate "The [MASK] is [MASK] [MASK]." --model bert --fill gibbs
    llmcurate generate "The [MASK] flows." --model bert --top 5 --json
    """
    from curate.api.model_settings import Generate

    chosen = Generate.of(**settings)
    if chosen.system is not None and not chosen.chat:
        raise UsageError("--system is the first message of a chat: give --chat, too")
    texts = [*(beginnings or ()), *(_prompts(chosen.prompts) if chosen.prompts is not None else ())]
    for text in texts:
        _check_text(text, "a prompt")
    folder = newest("model", model, "--model")
    with needs_training():
        from train.data.chat import Chat
        from train.device import autocast
        from train.generate import Filling, Sampling, candidates, complete, load

        sampling = Sampling(
            temperature=chosen.temperature,
            top_k=chosen.top_k,
            top_p=chosen.top_p,
            min_p=chosen.min_p,
            repetition_penalty=chosen.repetition_penalty,
        )
        say_checkpoint(folder, chosen.checkpoint, as_json, chosen.device)
        trained, tokens = load(folder, device=chosen.device, which=chosen.checkpoint)
        with autocast(trained.embedding.weight.device, chosen.precision):
            asked = texts if chosen.top else []
            likeliest = [candidates(trained, tokens, text, chosen.top) for text in asked]
            completions = complete(
                trained,
                tokens,
                texts or [""],
                max_tokens=chosen.max_tokens if "max_tokens" in settings else None,
                sampling=sampling,
                seed=chosen.seed,
                batch=chosen.batch,
                compiled=chosen.compile,
                filling=Filling(method=chosen.fill, rounds=chosen.rounds),
                suffix=chosen.suffix,
                chat=Chat(folder / "tokenizer.json") if chosen.chat else None,
                system=chosen.system,
            )
    # An encoder-decoder writes a separate text.
    apart = chosen.chat or trained.encoder is not None
    suffix = chosen.suffix or ""
    listed = [_candidate_lines(masks) for masks in likeliest] or [""] * len(completions)
    text = "\n---\n".join(
        (c.text if apart else c.prompt + c.text + suffix) + lines
        for c, lines in zip(completions, listed, strict=True)
    )
    facts: list[dict[str, Any]] = [dict(vars(c)) for c in completions]
    for fact, given in zip(facts, texts or [""], strict=True):
        fact["prompt"] = given
    for fact, masks in zip(facts, likeliest, strict=False):  # none without --top
        fact["candidates"] = [[vars(candidate) for candidate in mask] for mask in masks]
    print_result({"seed": chosen.seed, "completions": facts}, text, as_json)
    suggest("export", *([model] if model else ["--format", "hf"]), "-o", "hf", quiet=as_json)


def _candidate_lines(masks: list[list[Candidate]]) -> str:
    lines = [
        ", ".join(f"{each.token.strip()} {each.probability:.3f}" for each in mask) for mask in masks
    ]
    return "".join(f"\n  mask {number}: {line}" for number, line in enumerate(lines, 1))


@app.command(rich_help_panel="Train")
def which(
    step: Annotated[
        int,
        typer.Option(
            metavar="INTEGER",
            help="Number of the training step, from 1, as in metrics.jsonl.",
            min=1,
        ),
    ],
    model: Trained = None,
    shards: Annotated[
        Optional[Path],
        typer.Option(metavar="PATH", help="Folder of the shards, if they were moved."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the documents that one training step read.

    It shows the number of tokens that the step read from each document.

    \b
    Example:
    llmcurate which --model model --step 1234
    """
    folder = newest("model", model, "--model")
    with needs_training():
        from train.measure.step_documents import documents_of_step as documents_of

        documents = documents_of(folder, step, shards)
    print_result(documents, step_text(documents), as_json)


def step_text(step: Step) -> str:
    from llmcurate.base.pages.html import plain

    lines = [
        f"step {step.step} ({step.stage}): {counted(step.rows, 'row')},"
        f" {counted(step.tokens, 'token')} of {counted(len(step.documents), 'document')}"
    ]
    if step.skipped is not None:
        lines.append(f"the step was skipped: {plain(step.skipped)}")
    rows = [[str(d.tokens), plain(d.source or d.shards, 40), plain(d.id)] for d in step.documents]
    return "\n".join([*lines, *table((), rows, left=(1, 2), indent=2)])


def _prompts(file: Path) -> list[str]:
    if file.suffix in (".gz", ".zst", ".parquet"):
        raise UsageError(f"{file}: give plain text or JSONL, not {file.suffix}")
    prompts, is_json = [], file.suffix in (".jsonl", ".ndjson", ".json")
    for number, line in enumerate(read_text(file).split("\n"), 1):  # JSON may hold U+2028
        if line.strip():
            text = line.removesuffix("\r")
            prompts.append(_prompt(text, f"{file}:{number}") if is_json else text)
    if not prompts:
        raise UsageError(f"{file} has no prompt")
    return prompts


def _prompt(line: str, where: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: not JSON") from None
    text = value.get("prompt", value.get("text")) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise UsageError(f"{where}: no text under `prompt` or `text`")
    _check_text(text, where)
    return text


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # raw bytes on the command line, or a lone surrogate in JSON
        raise UsageError(f"{where}: not UTF-8") from None


@command(app, "Export", panel="Train")
def export(inputs: Inputs = None, *, options: CommandOptions, **settings: Any) -> None:
    """Export a corpus or a model for other tools.

    A corpus is written as OUT/jsonl/part-*.jsonl.zst, or by --format as OUT/warc/part-*.warc.gz,
    OUT/signatures.parquet (datasketch's LeanMinHash) or OUT/filter.bloom (pybloom-live).

    \b
    Examples:
    llmcurate export corpus/ -o out
    llmcurate export corpus/ -o out --format warc
    llmcurate export model/ -o hf-model --dtype bfloat16
    llmcurate export model/ -o model.gguf --format gguf --dtype q8_0
    llmcurate export topics/ -o topics-onnx --format onnx
    """
    from curate.api.command_settings import Export
    from curate.formats.folders import OF_DOCUMENTS, kinds_of

    chosen = Export.of(**settings)
    kinds = kinds_of(Path(inputs[0])) if inputs else []
    is_model = "model" in kinds and set(kinds).isdisjoint(OF_DOCUMENTS)
    to = "hf" if is_model and "format" not in settings else chosen.format
    if to in ("hf", "gguf", "onnx"):
        export_model(inputs or [], chosen.dtype, options, chosen.checkpoint, to)
    else:
        settings = chosen.model_dump(include={"format", "compression", "attributes", "key"})
        run_steps("export", [("export", settings)], inputs, options)


def export_model(
    inputs: list[str], dtype: str, options: CommandOptions, which: str = "best", to: str = "hf"
) -> None:
    """Write a trained model in the format `to`: a folder that transformers can load, a folder with
    model.onnx, or a GGUF file (OUT itself if its name ends in .gguf, else OUT/model.gguf). Raises
    UsageError if there are several models or no OUT."""
    if len(inputs) > 1:
        raise UsageError(f"export --format {to} takes one trained model; give one folder")
    out = options.out
    if out is None:
        raise UsageError("give -o OUT, the folder to write")
    if to == "gguf" and out.suffix != ".gguf":
        out /= "model.gguf"
    run = newest("model", Path(inputs[0]) if inputs else None, "IN")
    a_model(run)
    with needs_training():
        from train.hf.export import chosen

        family_of, write = _exporter(to)
        if options.dry_run:
            checkpoint, plan = chosen(run, which)
            architecture = family_of(plan.model).class_of(plan.model)
            echo(f"would export {checkpoint} as {architecture} to {out}")
            return
        if options.restart and out.exists():
            say(f"renamed {out} to {rename_aside(out)}")
        say_checkpoint(run, which, options.quiet or options.as_json)
        summary = write(run, out, dtype=dtype, which=which)
    text = (
        f"{out}: {summary.architecture}, {summary.parameters:,} parameters in"
        f" {summary.dtype}, {summary.bytes / 1e6:,.1f} MB, from {summary.checkpoint}"
    )
    print_result(vars(summary) | {"out": str(out)}, text, options.as_json, options.quiet)


def _exporter(to: str) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """Return two functions for the format `to`: one finds a model's family, one writes models."""
    if to == "gguf":
        from tokenize_kit.change.gguf_model import add_tokenizer
        from train.hf.gguf import architecture_of, export_gguf

        return architecture_of, partial(export_gguf, finish=add_tokenizer)
    if to == "onnx":
        from train.hf.onnx import encoder_family, export_onnx

        return encoder_family, export_onnx
    from train.hf.export import export
    from train.hf.families import family_of

    return family_of, export


@app.command("import", rich_help_panel="Train")
def import_(
    folder: Annotated[Path, typer.Argument(help="Folder of a model saved by transformers.")],
    out: NewFolder,
    context: Annotated[
        Optional[int],
        typer.Option(
            metavar="INTEGER", help="Context length in tokens. The default is the model's.", min=1
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import a model from transformers.

    It reads config.json, tokenizer.json and the weights (safetensors, else pytorch_model.bin).

    \b
    Example:
    llmcurate import gpt2/ -o gpt2-run
    llmcurate generate "The river" --model gpt2-run
    """
    from curate.formats.folders import require_kind

    require_kind(folder, "transformers")
    with needs_training():
        from train.hf.load import first_names, import_model

        summary = import_model(folder, out, context=context)
    text = (
        f"{out}: {summary.parameters:,} parameters of a {summary.family} model, "
        f"{counted(summary.vocab, 'token')}, context {summary.context:,}"
    )
    if summary.left_out:
        text += f"; left out, because the model class lacks them: {first_names(summary.left_out)}"
    print_result(vars(summary) | {"out": str(out)}, text, as_json, quiet)
    suggest("generate", "--model", out, quiet=quiet or as_json)
