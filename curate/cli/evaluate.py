"""`llmcurate evaluate` and `ablate`: a model scored on texts and questions; corpora compared by the
models that they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    EXPERIMENT,
    CommandOptions,
    Json,
    NewFolder,
    Quiet,
    ReadOptions,
    Sets,
    TrustCode,
    app,
    newest,
    read_changes,
    reading,
)
from curate.cli.settings import READS_TEXTS, command
from curate.products.needs import needs_training
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import answer, echo, say, table

if TYPE_CHECKING:
    from train.evaluate.judge import Judgement
    from train.loop.evaluate import Score


@command(app, "Evaluate", reads=READS_TEXTS, panel="Train")
def evaluate(
    model: Annotated[
        Optional[Path],
        typer.Argument(
            help="Folder of a trained model, or of one as transformers saves it. In a workspace the"
            " default is the newest."
        ),
    ] = None,
    named: Annotated[
        Optional[list[str]], typer.Argument(metavar="NAME=PATH...", hidden=True)
    ] = None,
    on: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME=PATH",
            help="Documents that llmcurate reads, token shards of the model's tokenizer, or"
            " questions in JSON lines. They may follow MODEL without --on. [repeatable; required]",
        ),
    ] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Score a model on texts and questions.

    Texts have bits a byte by source. Questions are {"context", "continuation"} or {"context",
    "choices", "answer"} a line, and have accuracies. Intervals hold 95 % of 1,000 resamples.

    \b
    Example:
    llmcurate evaluate model --on news=news.jsonl --on quiz=quiz.jsonl --json
    """
    import tempfile

    from curate.api.model_settings import Evaluate
    from curate.cli.training import say_checkpoint
    from curate.formats.folders import needs
    from curate.products.eval_texts import as_shards, named_paths

    folder = newest("model", model, "MODEL")
    needs(folder, "model", "transformers")
    chosen = Evaluate.of(**settings)
    paths = named_paths([*(named or []), *(on or [])])
    if not paths:
        raise UsageError("name the texts: --on NAME=PATH")
    with needs_training(), tempfile.TemporaryDirectory(prefix="llmcurate-evaluate-") as place:
        from train.evaluate.judge import judge, open_model
        from train.evaluate.questions import are_questions

        say_checkpoint(folder, chosen.checkpoint, quiet or as_json)
        judged = open_model(folder, device=chosen.device, which=chosen.checkpoint)
        asked = {name: Path(path) for name, path in paths.items() if are_questions(Path(path))}
        texts = {
            name: as_shards(
                path,
                judged.tokenizer_file,
                Path(place) / name,
                lambda line: say(line, quiet),
                read=reading(read),
            )
            for name, path in paths.items()
            if name not in asked
        }
        figures = judge(
            judged,
            texts=texts,
            questions=asked,
            context=chosen.context,
            batch_rows=chosen.batch,
            precision=chosen.precision,
            seed=chosen.seed,
        )
    answer(figures, evaluation_text(figures), as_json)


def evaluation_text(figures: Judgement) -> str:
    """The scores of a model in tables: of texts, and of questions."""
    from llmcurate.base.pages.html import plain

    texts, questions = [], []
    for name, own in figures.texts.items():
        texts.append([plain(name, 48), *_cells(own), _bounds(own.bits_per_byte_interval)])
        texts += [[f"  {plain(n, 46)}", *_cells(s), ""] for n, s in own.sources.items()]
    score: Any
    for name, score in figures.questions.items():
        by_bytes = score.get("accuracy_by_bytes")
        questions.append(
            [
                plain(name, 48),
                f"{score['questions']:,}",
                f"{score['accuracy']:.3f}",
                _bounds(score["accuracy_interval"]),
                "-" if by_bytes is None else f"{by_bytes:.3f}",
                _bounds(score.get("accuracy_by_bytes_interval")),
                f"{score['log_likelihood']:.3f}",
                f"{score['bits_per_byte']:.3f}",
            ]
        )
    lines = []
    if texts:
        head = ["text", "documents", "tokens", "loss", "bits/byte", "95 %"]
        lines += table(head, texts)
    if questions:
        head = ["questions", "number", "accuracy", "95 %", "by bytes", "95 %"]
        lines += table([*head, "log-likelihood", "bits/byte"], questions)
    return "\n".join(lines)


def _cells(score: Score) -> list[str]:
    bits = score.bits_per_byte  # None: nothing says how many bytes the text has
    shown = "-" if bits is None else f"{bits:.3f}"
    return [f"{score.documents:,}", f"{score.tokens:,}", f"{score.loss:.3f}", shown]


def _bounds(interval: list[float] | None) -> str:
    return "" if interval is None else " to ".join(f"{bound:.3f}" for bound in interval)


@command(app, "Ablate", shared=(*EXPERIMENT, "dry_run"), reads=READS_TEXTS, panel="Train")
def ablate(
    corpora: Annotated[
        list[str],
        typer.Argument(
            metavar="CORPUS...",
            help="Documents or runs, as PATH or NAME=PATH; with --recipes recipes. Differences are"
            " from the first.",
        ),
    ],
    out: NewFolder,
    on: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME=PATH",
            help="Text that all models are scored on, from elsewhere than the corpora: documents"
            " that llmcurate reads. [repeatable]",
        ),
    ] = None,
    recipes: Annotated[
        bool, typer.Option("--recipes", help="CORPUS... are recipes, run over --input.")
    ] = False,
    inputs: Annotated[
        Optional[list[str]],
        typer.Option(
            "--input",
            metavar="PATH",
            help="With --recipes: files, folders or URLs that all recipes read. [repeatable]",
        ),
    ] = None,
    sets: Sets = None,
    trust_code: TrustCode = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Train on corpora alike and compare them.

    One tokenizer, the same model, tokens, seeds and evaluation texts for all; --set
    CORPUS.SECTION.KEY is a setting of tokenizer, shards or pretrain that one corpus has for itself.
    Differences are in bits a byte, with intervals of 95 % over documents and seeds; a placebo, the
    first corpus in another order, is trained too. Stopped, the same command goes on.

    \b
    Example:
    llmcurate ablate kept=out raw=raw.jsonl --on news=news.jsonl --tokens 2M -o help
    llmcurate ablate --recipes c4 c4-unfiltered --input crawl/ --on wiki=wiki.jsonl \\
      --minutes 20 -o help
    llmcurate ablate small=a.jsonl large=a.jsonl --set large.tokenizer.vocab=8192 --epochs 1 \\
      --on wiki=wiki.jsonl -o vocabularies
    """
    from curate.api.model_settings import Ablate
    from curate.engines.base import check_engine
    from curate.products.eval_texts import named_paths

    chosen = Ablate.of(**settings)
    check_engine(options.engine, options.address)
    if options.engine == "slurm":
        raise UsageError("--engine slurm: runs of an experiment are made by local or ray")
    with needs_training():
        from curate.experiment.ablate import describe, run_experiment
        from curate.experiment.corpora import named_corpora
        from curate.experiment.runs import Place

        named = named_corpora(corpora, inputs or [], recipes)
        scored = named_paths(on or [])
        if options.dry_run:
            echo("\n".join(describe(named, scored, chosen, sets or [])))
            return
        place = Place(options.engine, options.address, options.workers, options.quiet)
        changes = [*(sets or ()), *read_changes(options.read)]
        run_experiment(named, scored, out, chosen, changes, place).show(out, options.as_json)
