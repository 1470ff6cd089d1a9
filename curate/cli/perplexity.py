"""`llmcurate perplexity`: documents by how expected they are; n-gram models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import DEFAULT, Inputs, Json, Restart, Sets, group, run_steps
from curate.cli.settings import command
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import echo, echo_json

if TYPE_CHECKING:
    from curate.cli.execution import CommandOptions

SHOWN_CHARS = 100  # of a text in the table
BATCH = 1000  # texts

perplexity_app = group(
    "perplexity", "Sort documents by perplexity (perplexity IN...).", default=True
)


@command(perplexity_app, "perplexity", DEFAULT, hidden=True)
def perplexity(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Score documents, sort them into head, middle and tail, and keep some.

    \b
    Example:
    llmcurate perplexity corpus/ -o out --model models/{lang}.bin --keep head,middle
    """
    run_steps("perplexity", [("perplexity", settings)], inputs, options, sets)


@command(perplexity_app, "perplexity_model", "train")
def perplexity_train(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Train a Kneser-Ney model on documents.

    Writes perplexity.bin and card.json.

    \b
    Example:
    llmcurate perplexity train wikipedia.jsonl -o model --variant ccnet --vocab 65536
    """
    run_steps("perplexity-model", [("perplexity_model", settings)], inputs, options, sets)


@command(perplexity_app, "PerplexityScore", "score")
def perplexity_score(
    model: Annotated[Path, typer.Argument(help="A model, perplexity.bin.")],
    file: Annotated[
        Optional[Path], typer.Argument(help="A text. The default, and -, is standard input.")
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Print the perplexity of every line of a text.

    \b
    Example:
    llmcurate perplexity score model/perplexity.bin essay.txt --by paragraph
    """
    import math

    import pyarrow as pa

    from curate.cli.command_settings import PerplexityScore
    from curate.scoring.perplexity.model import NgramModel

    texts = _texts(file, PerplexityScore.of(settings).by)
    opened = NgramModel.open(model, whole=True)
    if not as_json:
        echo(f"{'perplexity':>12} {'words':>7} {'log10':>12}  text")
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        array = pa.array(batch, pa.large_string())
        scores, values = opened.by_document(array), opened.perplexity(array)
        columns = (values, scores.length, scores.log10)
        for value, length, log10, text in zip(*(c.tolist() for c in columns), batch, strict=True):
            finite = not math.isnan(value)
            if as_json:
                row = {"perplexity": value if finite else None, "words": length, "log10": log10}
                echo_json({**row, "text": text})
            else:
                shown = " ".join(text.split())[:SHOWN_CHARS]
                number = f"{value:12.1f}" if finite else f"{'none':>12}"
                echo(f"{number} {length:7d} {log10:12.3f}  {shown}")


def _texts(file: Path | None, by: str) -> list[str]:
    """The lines, paragraphs or whole of a file, without blank ones."""
    import re
    import sys

    try:
        if file is None or str(file) == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    text = raw.decode("utf-8", "replace")
    if by == "document":
        texts = [text]
    elif by == "line":
        texts = text.splitlines()
    else:
        texts = re.split(r"\n[^\S\n]*(?:\n[^\S\n]*)+", text)
    return [t for t in texts if t.strip()]


@command(perplexity_app, "PerplexityConvert", "convert")
def perplexity_convert(
    source: Annotated[Path, typer.Argument(help="perplexity.bin, or an ARPA file.")],
    target: Annotated[Path, typer.Argument(help="The other form: *.arpa, or any other name.")],
    restart: Restart = False,
    **settings: Any,
) -> None:
    """Convert a model between ARPA and llmcurate's form.

    \b
    Example:
    llmcurate perplexity convert kenlm.arpa model.bin --pieces sp.model --variant ccnet
    """
    from curate.cli.command_settings import PerplexityConvert
    from curate.run.made import claim
    from curate.scoring.perplexity.arpa import read_arpa, write_arpa
    from curate.scoring.perplexity.model_file import read_model, write_model
    from curate.scoring.perplexity.sentences import Unit, load_pieces

    chosen = PerplexityConvert.of(settings)
    claim(target, [target], {"command": "perplexity convert", "source": source} | settings, restart)
    if target.suffix == ".arpa":
        write_arpa(target, read_model(source, whole=True))
    else:
        unit: Unit = chosen.unit
        data, pieces = b"", chosen.pieces
        if pieces is not None:
            try:
                data = pieces.read_bytes()
            except OSError as error:
                raise UsageError(f"cannot read {pieces}: {error.strerror}") from None
            load_pieces(data, str(pieces))
            unit = "pieces"
        write_model(target, read_arpa(source, chosen.variant, unit, data, {"arpa": source.name}))
    echo(f"wrote {target}")
