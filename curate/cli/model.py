"""`llmcurate model`: models on paper."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli.options import Json

model_app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="What models are made of and cost, before anything is trained.",
)


@model_app.command("show")
def model_show(
    model: Annotated[
        str, typer.Argument(help="A preset, or a folder that a model was trained into.")
    ],
    gpu: Annotated[str, typer.Option(help="H200, H100, A100 80GB, L40S, RTX 4090, ...")] = "H200",
    rows: Annotated[int, typer.Option(help="Rows of a step on one GPU.", min=1)] = 8,
    context: Annotated[
        Optional[int], typer.Option(help="Tokens of a row; the model's own, at most 4096.", min=1)
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts decoded at once.", min=1)] = 1,
    vocab: Annotated[Optional[int], typer.Option(help="Another vocabulary.", min=1)] = None,
    precision: Annotated[str, typer.Option(help="bf16 (autocast) or fp32.")] = "bf16",
    optimizer: Annotated[str, typer.Option(help="adamw, muon, lion or adafactor.")] = "adamw",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Keep no activations inside blocks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what a model is made of, costs and needs, and what bounds each operation.

    Example: llmcurate model show llama3-8b --gpu H200 --context 8192
    """
    from curate.cli import model_commands as commands_model

    commands_model.show(
        model,
        gpu=gpu,
        rows=rows,
        context=context,
        batch=batch,
        vocab=vocab,
        precision=precision,
        optimizer=optimizer,
        recompute=recompute,
        as_json=as_json,
    )


@model_app.command("list")
def model_list(as_json: Json = False) -> None:
    """Print the presets: names, parameters, architecture."""
    from curate.cli import model_commands as commands_model

    commands_model.presets(as_json)
