"""`llmcurate predict`: what a model with a head for a task says of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import Json, Quiet, app, output
from curate.cli.settings import command
from curate.products.needs import needs_training
from llmcurate.base.disk.files import write_text
from llmcurate.base.terminal import answer


@command(app, "Predict")
def predict(
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a fine-tuned model, or of one as transformers saves it."),
    ],
    texts: Annotated[Path, typer.Argument(metavar="FILE", help="Texts of its task in JSON lines.")],
    out: Annotated[Path, output("File in JSON lines to write.", "FILE")],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Label texts with a fine-tuned model.

    Writes each line with a `prediction`: the label and its probability, those of each word, or the
    answer. Where lines have labels, says how well predictions agree with them.

    \b
    Example:
    llmcurate predict topics texts.jsonl -o labelled.jsonl
    """
    from curate.api.model_settings import Predict

    chosen = Predict.of(**settings)
    with needs_training():
        from train.lab.tasks.predict import predict as predicted

        done = predicted(
            model,
            texts,
            context=chosen.context,
            batch_rows=chosen.batch,
            precision=chosen.precision,
            device=chosen.device,
        )
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in done.lines)
    write_text(out, "".join(lines))
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value:{',' if isinstance(value, int) else '.3f'}}"
        for name, value in done.figures.items()
        if name != "context"
    )
    answer({"out": str(out), **done.figures}, f"{out}: {shown}", as_json, quiet)
