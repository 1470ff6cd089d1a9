"""`llmcurate model transplant`: a trained model moved to another tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.model import model_app
from curate.cli.options import AnyModel, Json, NewFolder, Quiet, reading
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import echo, echo_json

if TYPE_CHECKING:
    from tokenize_kit.card.figures import Sample

SCORED_BYTES = 200_000  # of the texts, drawn by hash


@command(model_app, "ModelTransplant", "transplant")
def transplant(
    model: AnyModel,
    tokenizer: Annotated[
        Path, typer.Argument(metavar="TOKENIZER", help="tokenizer.json of the new one, its folder.")
    ],
    out: NewFolder,
    corpus: Annotated[
        Optional[list[str]],
        typer.Option(
            "--on",
            metavar="CORPUS",
            help="Texts that the model is scored on, before and after, and that focus learns from."
            " [repeatable]",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: dict[str, Any],
    **settings: Any,
) -> None:
    """Move a trained model to another tokenizer.

    Rows of tokens that both have are copied, others begin as --init says. With --on it prints bits
    a byte before and after.

    \b
    Examples:
    llmcurate model transplant model tok-th -o moved --init focus --on thai/
    llmcurate pretrain shards --model moved -o further
    """
    from curate.cli.model_settings import ModelTransplant
    from curate.inspect.evaluate.tokenizers import Documents
    from curate.products.needs import needs_training
    from llmcurate.base.terminal.progress import say
    from tokenize_kit.change.focus import drawn
    from tokenize_kit.change.source import file_of

    chosen = ModelTransplant.of(settings)
    if chosen.init == "focus" and not corpus:
        raise UsageError("transplant: --init focus learns from texts: give --on CORPUS")
    documents = Documents(corpus, quiet, reading(read)) if corpus else None
    texts = None
    if documents:
        texts = lambda: ((data, offsets) for data, offsets, _ in documents.batches())  # noqa: E731
    with needs_training():
        from tokenize_kit.change.addition import Transplant
        from train.evaluate.judge import opened
        from train.hf.load import transplant as move

        judged, new = opened(model), file_of(tokenizer)
        tables = Transplant(judged.tokenizer_file, new, chosen.init, chosen.seed, texts)
        sample = drawn(texts, SCORED_BYTES) if texts else None
        figures = tables.describe() | move(model, out, new, tables.rows)
        config = judged.model.config
        if sample and config.form == "decoder" and config.writes:
            before, after = (_bits_per_byte(folder, sample) for folder in (model, out))
            figures |= {"bits_per_byte_before": before, "bits_per_byte_after": after}
    if as_json:
        echo_json({"out": str(out), **figures})
        return
    say(f"wrote {out}", quiet)
    common, new_tokens = figures["common_tokens"], figures["new_tokens"]
    echo(f"{common:,} of {counted(new_tokens, 'token')} are in both, and keep their rows")
    if "bits_per_byte_before" in figures:
        echo(
            f"bits a byte: {figures['bits_per_byte_before']:.4f} before,"
            f" {figures['bits_per_byte_after']:.4f} right after"
        )


def _bits_per_byte(folder: Path, sample: Sample) -> float:
    """Of the texts of a sample, by the model of a folder with its own tokenizer."""
    import json
    import tempfile

    from curate.products.eval_texts import as_shards
    from train.evaluate.judge import judge, open_model

    with tempfile.TemporaryDirectory(prefix="llmcurate-transplant-") as scratch:
        source = Path(scratch) / "texts.jsonl"
        lines = [json.dumps({"text": text}) for text in sample.texts()]
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        judged = open_model(folder)
        shards = as_shards(
            str(source), judged.tokenizer_file, Path(scratch) / "shards", lambda line: None
        )
        scores = judge(judged, texts={"texts": shards}, questions={})
    return float(scores["texts"]["texts"]["bits_per_byte"])
