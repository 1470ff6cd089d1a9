"""`llmcurate model rope-search`, `transplant`; `predict`; `scaling`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    AnyModel,
    DryRun,
    Json,
    NewFolder,
    Quiet,
    ReadOptions,
    Sets,
    app,
    group,
    output,
    reading,
)
from curate.cli.settings import READS_TEXTS, command
from curate.cli.training import say_checkpoint
from curate.products.needs import needs_training
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import Progress, echo, echo_json, print_result, say, suggest, table

if TYPE_CHECKING:
    from tokenize_kit.card import Sample
from curate.cli.model import model_app


@command(model_app, "ModelRopeSearch", "rope-search", reads=READS_TEXTS)
def model_rope_search(
    model: AnyModel,
    out: Annotated[Path, output("JSON file to write.", "FILE")],
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Find rotary factors for a longer context.

    This is LongRoPE's search (Ding et al. 2024): a divisor for each pair of dimensions, by the loss
    on long texts, starting from positional interpolation, NTK and YaRN. Use the file as a model
    setting, as in the example.

    \b
    Example:
    llmcurate model rope-search model --on texts.jsonl --context 8192 -o factors.json
    llmcurate pretrain shards -o long --model model --context 8192 \\
      --set "model.position.scaling=$(cat factors.json)"
    """
    import tempfile
    import time

    from curate.api.model_settings import ModelRopeSearch
    from curate.products.eval_texts import as_shards

    chosen = ModelRopeSearch.of(**settings)
    with needs_training(), tempfile.TemporaryDirectory(prefix="llmcurate-rope-") as folder:
        from train.evaluate.judge import open_model
        from train.lab.rope_search import older_scalings, rope_search

        judged = open_model(model, device=chosen.device)
        older_scalings(judged.model.config, chosen.context)  # raises before texts are encoded
        shards = as_shards(
            chosen.on,
            judged.tokenizer_file,
            Path(folder) / "shards",
            lambda line: say(line, quiet),
            read=reading(read),
        )
        with Progress("searching factors", chosen.evaluations, quiet) as progress:
            begun = time.monotonic()

            def scored(least: float) -> None:
                pace = (time.monotonic() - begun) / (progress.done + 1)
                seconds = pace * (chosen.evaluations - progress.done - 1)
                progress.update(note=f"loss {least:.4f}", seconds_left=seconds)

            figures = rope_search(
                judged,
                shards,
                context=chosen.context,
                evaluations=chosen.evaluations,
                rows=chosen.rows,
                batch_rows=chosen.batch,
                precision=chosen.precision,
                seed=chosen.seed,
                on_scored=scored,
            )
    write_text(out, json.dumps(figures.scaling) + "\n")
    number = figures.texts
    head = ("loss", *(f"{of.replace('_', ' ')}, {counted(number[of], 'text')}" for of in number))
    rows = [
        (name, *(f"{score[of]:.4f}" for of in number)) for name, score in figures.scores.items()
    ]
    note = f"{out}: longrope factors for --set model.position.scaling"
    found = {"out": str(out), **vars(figures)}
    print_result(found, "\n".join([*table(head, rows), note]), as_json)


SCORED_BYTES = 200_000  # bytes of texts on which the model is scored


@command(model_app, "ModelTransplant", "transplant")
def transplant(
    model: AnyModel,
    tokenizer: Annotated[
        Path, typer.Argument(metavar="TOKENIZER", help="New tokenizer.json, or its folder.")
    ],
    out: NewFolder,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Give a trained model another tokenizer.

    Embeddings of tokens in both vocabularies are copied; --init says how the others start. With
    --on it prints bits per byte before and after.

    \b
    Examples:
    llmcurate model transplant model tok-th -o moved --init focus --on thai/
    llmcurate pretrain shards --model moved -o further
    """
    from curate.api.model_settings import ModelTransplant
    from curate.cli.tokenizer import buffers
    from tokenize_kit.change.original import file_of
    from tokenize_kit.lab.embeddings import drawn

    chosen = ModelTransplant.of(**settings)
    if chosen.init == "focus" and not chosen.on:
        raise UsageError("transplant: --init focus needs texts: give --on CORPUS")
    texts = buffers(chosen.on, quiet, reading(read)) if chosen.on else None
    with needs_training():
        from tokenize_kit.lab.addition import Transplant
        from train.evaluate.judge import load_judged
        from train.hf.load import transplant as move

        judged, new = load_judged(model), file_of(tokenizer)
        tables = Transplant(judged.tokenizer_file, new, chosen.init, texts)
        sample = drawn(texts, SCORED_BYTES) if texts else None
        figures = tables.describe() | vars(move(model, out, new, tables.rows))
        config = judged.model.config
        if sample and config.form == "decoder" and config.writes:
            before, after = (_bits_per_byte(folder, sample) for folder in (model, out))
            figures |= {"bits_per_byte_before": before, "bits_per_byte_after": after}
    if as_json:
        echo_json({"out": str(out), **figures})
        return
    say(f"wrote {out}", quiet)
    common, new_tokens = figures["common_tokens"], figures["new_tokens"]
    echo(f"{common:,} of {counted(new_tokens, 'token')} are in both and keep their embeddings")
    if "bits_per_byte_before" in figures:
        echo(
            f"bits per byte: {figures['bits_per_byte_before']:.4f} before,"
            f" {figures['bits_per_byte_after']:.4f} right after"
        )


def _bits_per_byte(folder: Path, sample: Sample) -> float:
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
    bits = scores.texts["texts"].bits_per_byte
    assert bits is not None
    return bits


@command(app, "Predict", panel="Lab")
def predict(
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a fine-tuned model of llmcurate or transformers."),
    ],
    texts: Annotated[Path, typer.Argument(metavar="FILE", help="Texts of its task, in JSONL.")],
    out: Annotated[Path, output("JSONL file to write.", "FILE")],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Label texts with a fine-tuned model.

    Each line gets a `prediction`: a label with its probability, one per word, or an answer. If the
    lines have labels, it also prints how well the predictions agree with them.

    \b
    Example:
    llmcurate predict topics texts.jsonl -o labelled.jsonl
    """
    from curate.api.model_settings import Predict

    chosen = Predict.of(**settings)
    if out.exists():
        raise UsageError(f"{out} exists already: give a new file")
    with needs_training():
        from train.lab.tasks.predict import predict as predicted

        say_checkpoint(model, chosen.checkpoint, quiet or as_json, chosen.device)
        done = predicted(
            model,
            texts,
            context=chosen.context,
            batch_rows=chosen.batch,
            precision=chosen.precision,
            device=chosen.device,
            which=chosen.checkpoint,
        )
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in done.lines)
    write_text(out, "".join(lines))
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value:{',' if isinstance(value, int) else '.3f'}}"
        for name, value in done.figures.items()
        if name != "context"
    )
    print_result({"out": str(out), **done.figures}, f"{out}: {shown}", as_json, quiet)


scaling_app = group("scaling", "Fit scaling laws, and plan a model for a budget.", "Lab")


@command(scaling_app, "ScalingRun", "run")
def scaling_run(
    out: NewFolder,
    shards: Annotated[
        Optional[Path],
        typer.Argument(metavar="SHARDS", help="Token shards. In a workspace the newest."),
    ] = None,
    sets: Sets = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a sweep over model sizes and budgets.

    With --flops all sizes of a budget cost the same (IsoFLOP); with --tokens they read the same
    number of tokens. In each run the learning rate decays until the end. With --unique-tokens each
    budget is also run on a part of the corpus, repeated. Run the same command to resume.

    \b
    Example:
    llmcurate scaling run shards/ -o sweep --flops 2e11,6e11,2e12
    llmcurate scaling run shards/ -o sweep --tokens 1e5,1e6 --sizes 64x2,128x3
    llmcurate scaling run shards/ -o sweep --tokens 1e5,3e5,1e6 --unique-tokens 2e4,1e5
    """
    from curate.api.model_settings import ScalingRun
    from curate.cli.options import newest
    from curate.lab.scaling import run_sweep

    chosen = ScalingRun.of(**settings)
    folder = newest("shards", shards, "SHARDS")
    with needs_training():
        run_sweep(folder, out, chosen, sets or [], as_json, quiet, dry_run)
    suggest("scaling", "fit", out, quiet=quiet or as_json or dry_run)


@command(scaling_app, "ScalingFit", "fit")
def scaling_fit(
    points: Annotated[
        Path,
        typer.Argument(
            metavar="POINTS",
            help="Folder of a sweep, or a CSV or JSON file with parameters, tokens and loss.",
        ),
    ],
    out: Annotated[
        Optional[Path],
        output("Folder for scaling.json and a page. The default is the sweep's."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fit scaling laws to losses.

    It fits Hoffmann et al.'s three approaches, Kaplan's law and the value of repeated text, with 95
    % intervals. Points may also have flops, unique_tokens and non_embedding.

    \b
    Example:
    llmcurate scaling fit sweep
    llmcurate scaling fit points.csv -o law
    """
    from curate.api.model_settings import ScalingFit
    from curate.lab.scaling import fit_points

    chosen = ScalingFit.of(**settings)
    with needs_training():
        fit_points(points, out, chosen, as_json, quiet or as_json)
    plan = ("scaling", "plan", "--flops", "1e20", "--fit", out or points)
    suggest(*plan, quiet=quiet or as_json or points.is_file())


@command(scaling_app, "ScalingPlan", "plan")
def scaling_plan(as_json: Json = False, **settings: Any) -> None:
    """Plan parameters, tokens and hours for a budget.

    It uses Chinchilla's rule, published laws, and with --fit your own. With --unique-tokens scarce
    text is repeated, and counts less each time (Muennighoff et al. 2023).

    \b
    Example:
    llmcurate scaling plan --flops 1e20
    llmcurate scaling plan --flops 1e20 --unique-tokens 2e9 --fit sweep --gpu H100
    """
    from curate.api.model_settings import ScalingPlan
    from curate.lab.scaling import plan_budget

    chosen = ScalingPlan.of(**settings)
    with needs_training():
        plan_budget(chosen, as_json)
