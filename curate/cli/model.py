"""`llmcurate model`: what models are made of and cost, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import (
    AnyModel,
    Json,
    NewFolder,
    Quiet,
    ReadOptions,
    Sets,
    TrustCode,
    group,
    output,
    reading,
)
from curate.cli.settings import READS_TEXTS, command
from llmcurate.base.disk.units import counted, format_bytes, format_percent, format_scaled
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import answer, echo, echo_json
from llmcurate.base.terminal.tables import table

if TYPE_CHECKING:
    from tokenize_kit.card.figures import Sample
    from train.model.config import ModelConfig

model_app = group("model", "Show what models are made of, compare them, move them.")


@command(model_app, "ModelShow", "show")
def model_show(
    model: Annotated[
        str,
        typer.Argument(
            help="A preset, or a folder that a model was trained into.",
            autocompletion=completion.presets,
        ),
    ],
    sets: Sets = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show a model: parts, costs, memory, bounds.

    Shows what it is made of, what training and decoding take, and what bounds each operation.

    \b
    Example:
    llmcurate model show llama3-8b --gpu H200 --context 8192
    llmcurate model show 124m --set model.attention.window=64
    """
    from curate.cli.model_settings import ModelShow
    from curate.products.needs import needs_training

    chosen = ModelShow.of(settings)
    with needs_training():
        from train.measure.describe import describe, find_gpu
        from train.model.presets import OWN
        from train.optim.optimizers import OPTIMIZERS

        if chosen.optimizer not in OPTIMIZERS:
            raise UsageError(
                f"--optimizer is {chosen.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}"
            )
        config = _config(model, chosen.vocab, sets or [])
        facts = describe(
            config,
            device=find_gpu(chosen.gpu),
            rows=chosen.rows,
            context=chosen.context or min(config.context, 4096),
            batch=chosen.batch,
            precision=chosen.precision,
            optimizer=chosen.optimizer,
            recompute=chosen.recompute,
            preset=None if Path(model).is_dir() or model in OWN else model,
        )
    answer(facts, "\n".join(model_lines(model, facts)), as_json)


@command(model_app, "ModelCoordinates", "coordinates")
def model_coordinates(
    model: Annotated[
        str, typer.Argument(help="A preset, or a folder that a model was trained in.")
    ],
    sets: Sets = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Check muP: do activations keep their size?

    Trains the model for some steps at several widths and shows how far outputs moved: a slope near
    0 says that a learning rate holds at other widths.

    \b
    Example:
    llmcurate model coordinates tiny --set model.attention.head_dim=16 --widths 96,192,384
    """
    from curate.cli.model_settings import ModelCoordinates
    from curate.products.needs import needs_training

    chosen = ModelCoordinates.of(settings)
    try:
        widths = sorted({int(width) for width in chosen.widths.split(",")})
    except ValueError:
        widths = []
    if len(widths) < 2 or widths[0] < 1:
        raise UsageError(f"--widths is {chosen.widths!r}: give two hidden sizes or more, as 64,128")
    with needs_training():
        from train.config import TrainConfig
        from train.measure.coordinates import coordinates

        plan = TrainConfig(
            steps=chosen.steps, lr=chosen.lr, optimizer=chosen.optimizer, seed=chosen.seed
        )
        outputs_of = coordinates(_config(model, None, sets or []), widths, plan)
    rows = [
        (kind, name, *(f"{size:.3g}" for size in row["sizes"]), f"{row['slope']:+.2f}")
        for kind, outputs in outputs_of.items()
        for name, row in outputs.items()
    ]
    head = ("", "changes by", *(str(width) for width in widths), "slope")
    lines = table(head, rows, left=(0, 1))
    answer({"widths": widths, **outputs_of}, "\n".join(lines), as_json)


@command(model_app, "ModelCompare", "compare")
def model_compare(
    variants: Annotated[
        list[str],
        typer.Argument(
            metavar="VARIANT...",
            help="A preset, settings behind it: NAME=PRESET,KEY=VALUE; or a YAML file of them.",
        ),
    ],
    out: NewFolder,
    shards: Annotated[
        Optional[Path],
        typer.Option(metavar="PATH", help="Token shards. In a workspace the newest."),
    ] = None,
    sets: Sets = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train variants of a model alike and compare them.

    Each is trained from several seeds on as many tokens, or FLOPs. Differences are from the first,
    seed by seed, with intervals of 95 %. Stopped, the same command goes on.

    \b
    Example:
    llmcurate model compare tiny gelu=tiny,feed_forward.activation=gelu,feed_forward.width=768 \\
      --shards shards/ --tokens 200000 -o comparison
    llmcurate model compare tiny mine=tiny,feed_forward=my_layer.py:LiGLU --shards shards/ \\
      --flops 1e13 --set pretrain.warmup=10 --set model.layers=2 -o comparison
    """
    from curate.cli.model_settings import ModelCompare
    from curate.cli.options import newest
    from curate.inspect.compare.models import compare_models
    from curate.inspect.results import check_folder
    from curate.products.needs import needs_training

    chosen = ModelCompare.of(settings)
    if (chosen.tokens is None) == (chosen.flops is None):
        raise UsageError("give --tokens or --flops, one of the two")
    folder = newest("shards", shards, "--shards")
    with needs_training():
        check_folder(out)
        compare_models(variants, folder, out, chosen, sets or [], quiet).show(out, as_json)


@command(model_app, "ModelRopeSearch", "rope-search", reads=READS_TEXTS)
def model_rope_search(
    model: AnyModel,
    texts: Annotated[
        str,
        typer.Argument(
            help="Long documents that llmcurate reads, or token shards of the model's tokenizer."
        ),
    ],
    out: Annotated[Path, output("JSON file to write.", "FILE")],
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Search rotary factors for a longer context.

    LongRoPE's search (Ding et al. 2024): a divisor for each pair of dimensions, by the loss on long
    texts, from positional interpolation, NTK and YaRN on. The file is a setting of models.

    \b
    Example:
    llmcurate model rope-search model texts.jsonl --context 8192 -o factors.json
    llmcurate pretrain shards -o long --model model --context 8192 \\
      --set "model.position.scaling=$(cat factors.json)"
    """
    import json
    import tempfile
    import time

    from curate.cli.model_settings import ModelRopeSearch
    from curate.products.eval_texts import as_shards
    from curate.products.needs import needs_training
    from llmcurate.base.disk.files import write_text
    from llmcurate.base.terminal.progress import Progress, say

    chosen = ModelRopeSearch.of(settings)
    with needs_training(), tempfile.TemporaryDirectory(prefix="llmcurate-rope-") as folder:
        from train.evaluate.judge import open_model
        from train.evaluate.rope_search import older_scalings, rope_search

        judged = open_model(model, device=chosen.device)
        older_scalings(judged.model.config, chosen.context)  # refuse before texts are encoded
        shards = as_shards(
            texts,
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
    write_text(out, json.dumps(figures["scaling"]) + "\n")
    number = figures["texts"]
    head = ("loss", *(f"{of.replace('_', ' ')}, {counted(number[of], 'text')}" for of in number))
    rows = [
        (name, *(f"{score[of]:.4f}" for of in number)) for name, score in figures["scores"].items()
    ]
    note = f"{out}: the factors of longrope, for --set model.position.scaling"
    answer({"out": str(out), **figures}, "\n".join([*table(head, rows), note]), as_json)


def _config(model: str, vocab: int | None, sets: list[str]) -> ModelConfig:
    """A preset, or the configuration of a trained model, with other settings."""
    from curate.cli.training import a_model
    from curate.products.pretraining import NAMES
    from curate.steps.recipe import Change
    from llmcurate.base.settings import change
    from train.model.presets import PRESETS, preset
    from train.runs.checkpoint import model_of, newest

    items = [Change.of(text).within({"model": NAMES["model"]}) for text in sets]
    changes = {item.key: item.value for item in items}
    if vocab:
        changes["vocab"] = vocab

    folder = Path(model)
    if model not in PRESETS and folder.is_dir():
        checkpoint = newest(folder / "checkpoints")
        if checkpoint is None:
            a_model(folder)
            raise UsageError(f"{model}: no finished checkpoint in this folder")
        return change(model_of(checkpoint), changes, "model")
    return change(preset(model), changes, "model")


@model_app.command("list")
def model_list(as_json: Json = False) -> None:
    """List the presets: names, parameters, architecture."""
    from curate.products.needs import needs_training

    with needs_training():
        from train.measure.accounting import architecture_row, parameters
        from train.model.presets import PRESETS

        facts = []
        for name, build in PRESETS.items():
            config = build()
            facts.append((name, parameters(config), architecture_row(config)))
    listed = [{"name": name, "parameters": total, **row} for name, total, row in facts]
    answer(listed, "\n".join(preset_lines(facts)), as_json)


def model_lines(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """The facts of ``train.measure.describe.describe`` as lines of text."""
    config, total, gpu = facts["config"], facts["parameters"], facts["gpu"]
    active = facts.get("active_parameters")
    meets = f", of which a token meets {_parameters(active)}" if active else ""
    yield f"{name}: {_parameters(total['total'])} parameters{meets}"
    yield ""
    heads = config["attention"]
    sizes = {key: config[key] for key in ("layers", "hidden", "vocab", "context")}
    of_heads = ("heads", "kv_heads", "head_dim", "query_rank", "rank", "rotary_dim")
    sizes |= {key: heads[key] for key in (*of_heads, "plain_dim", "value_dim") if heads.get(key)}
    sizes |= {"feed-forward": config["feed_forward"]["width"]}
    yield "  " + ", ".join(f"{key} {value:,}" for key, value in sizes.items())
    yield from table((), [*facts["row"].items()], left=(0, 1), indent=2)
    yield ""
    yield "Parameters"
    shares = [
        (key, f"{value:,}", format_percent(value / total["total"]))
        for key, value in total.items()
        if value
    ]
    yield from table((), shares, indent=2)
    yield ""
    yield f"A token, at context {facts['context']:,}"
    costs = [
        ("training", f"{format_scaled(facts['training_flops_per_token'])}FLOP"),
        (
            f"at the peak of one {gpu['name']}",
            f"{facts['tokens_per_second_at_peak']:,.0f} tokens/s",
        ),
    ]
    writes = facts["config"]["causal"]
    if writes:
        costs.append(("keys and values, bf16", f"{facts['cache_bytes_per_token']:,} bytes"))
    yield from table((), costs, indent=2)
    yield ""
    memory = facts["memory"]
    setup = f"{counted(facts['rows'], 'row')} of {counted(facts['context'], 'token')}"
    setup += f", {facts['precision']}"
    setup += f", {facts['optimizer']}" + (", recompute" if facts["recompute"] else "")
    yield f"Training memory ({setup})"
    kinds = ("weights", "gradients", "optimizer", "activations", "peak")
    yield from table((), [(key, format_bytes(memory[key])) for key in kinds], indent=2)
    verdict = "fits" if facts["fits"] else "does not fit"
    yield f"  {verdict} in the {format_bytes(gpu['memory'])} of one {gpu['name']}"
    if not writes:
        return
    yield ""
    yield from _serving(facts["serving"], gpu)
    yield ""
    texts = "one text" if facts["batch"] == 1 else counted(facts["batch"], "text")
    yield (
        f"FLOPs a byte, one layer: below {gpu['ridge']:.0f} memory bounds the {gpu['name']} "
        f"(decoding {texts}: {format_bytes(facts['cache_bytes'])} of keys and values)"
    )
    pairs = zip(facts["training"], facts["decoding"], strict=True)
    bounds = [(a["name"], _ratio(a), a["bound"], _ratio(b), b["bound"]) for a, b in pairs]
    yield from table(("", "training", "", "decoding", ""), bounds, left=(0, 2, 4), indent=2)


def _serving(serving: dict[str, Any], gpu: dict[str, Any]) -> Iterator[str]:
    """Weights, keys and values by texts and context, and how many texts the GPU serves at once."""
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in serving["weights"].items())
    yield f"Serving memory (weights: {sizes})"
    lengths = [f"{length:,}" for length in serving["contexts"]]
    rows = [
        (f"keys and values of {counted(row['batch'], 'text')}", *map(format_bytes, row["bytes"]))
        for row in serving["cache"]
    ]
    rows += [
        (f"most texts at once, weights in {name}", *(f"{count:,}" for count in most))
        for name, most in serving["most"].items()
    ]
    yield from table(("tokens in a text", *lengths), rows, indent=2)
    yield f"  at once: in the {format_bytes(serving['usable'])} that one {gpu['name']} has for it"
    yield ""
    yield "Keys and values a token, and most texts at once, by heads that share them (bf16)"
    shared = [
        (
            row["kind"] + (", as it is" if row["own"] else ""),
            f"{row['bytes_per_token']:,} bytes",
            *(f"{count:,}" for count in row["most"]),
        )
        for row in serving["heads"]
    ]
    yield from table(("", "a token", *lengths), shared, indent=2)


def preset_lines(facts: Iterable[tuple[str, int, dict[str, str]]]) -> Iterator[str]:
    """A line a preset: name, parameters, what sets it apart."""
    rows = [
        (
            name,
            _parameters(total),
            row["norm"] + (", parallel" if row["block"] == "parallel" else ""),
            row["position"],
            row["attention"],
            row["feed-forward"],
        )
        for name, total, row in facts
    ]
    head = ("name", "parameters", "norm", "position", "attention", "feed-forward")
    yield from table(head, rows, left=(0, 2, 3, 4, 5), indent=2)


def _ratio(operation: dict[str, Any]) -> str:
    value = operation["intensity"]
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _parameters(value: int) -> str:
    return format_scaled(value).replace("G", "B")


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
    read: ReadOptions,
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
    from tokenize_kit.change.embeddings import drawn
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
