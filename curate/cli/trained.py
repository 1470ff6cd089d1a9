"""The commands on trained models: generate, which, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import Json, Quiet


def generate(
    prompts: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[PROMPT]...", help="The beginnings of texts; none: a new text."),
    ] = None,
    model: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of a trained model; in a workspace: the newest."),
    ] = None,
    prompts_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--prompts", help="A file of prompts: one a line, or .jsonl with `prompt` (or `text`)."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most.", min=1)] = 100,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.", min=0)] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw from so many tokens; 0: all.", min=0)] = 50,
    top_p: Annotated[
        float, typer.Option(help="Draw from the likeliest that hold this much probability.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Draw from tokens of at least this share of the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Over 1: what the text holds becomes less likely.")
    ] = 1.0,
    batch: Annotated[int, typer.Option(help="Prompts at a time.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="The same seed gives the same texts.")] = 0,
    as_json: Json = False,
) -> None:
    """Continue texts with a trained model.

    Example: llmcurate generate "The river" "In spring" --model model --top-p 0.9 --top-k 0
    """
    from curate.cli import trained_commands as trained

    sampling = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    trained.generate(prompts or [], prompts_file, model, max_tokens, sampling, batch, seed, as_json)


def which(
    step: Annotated[int, typer.Option(help="As metrics.jsonl counts them, from 1.", min=1)],
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of a trained model; in a workspace: the newest."),
    ] = None,
    shards: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Where its shards lie now, if they were moved."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Name the documents that a step of a training run was made of, and the tokens of each.

    Example: llmcurate which --run model --step 1234
    """
    from curate.cli import trained_commands as trained

    trained.which(run, step, shards, as_json)


def import_(
    folder: Annotated[Path, typer.Argument(help="A model's folder, as transformers saves it.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")],
    context: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its longest text in tokens, where not the folder's own.", min=1),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read a transformers model (config.json, safetensors, tokenizer.json) as one of ours.

    Example: llmcurate import gpt2/ -o gpt2-run && llmcurate generate "The river" --model gpt2-run
    """
    from curate.cli import trained_commands as trained

    trained.import_(folder, out, context, as_json, quiet)
