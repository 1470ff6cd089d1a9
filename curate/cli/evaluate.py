"""`llmcurate evaluate` and `compare`: score a model, and compare corpora and models by training."""

from __future__ import annotations

import json
from dataclasses import replace
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
from curate.products.needs import needs_harness, needs_training
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, print_result, say, suggest, table

if TYPE_CHECKING:
    from train.evaluate.judge import Judgement
    from train.loop.evaluate import Score


@command(app, "Evaluate", reads=READS_TEXTS, panel="Train")
def evaluate(
    model: Annotated[
        Optional[Path],
        typer.Argument(
            help="Folder of a trained model of llmcurate or transformers. In a workspace the"
            " default is the newest."
        ),
    ] = None,
    named: Annotated[
        Optional[list[str]], typer.Argument(metavar="NAME=PATH...", hidden=True)
    ] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Score a model on texts, questions and tasks.

    Texts are scored in bits per byte for each source, and questions by accuracy. A question is a
    line {"context", "continuation"}. Intervals are 95 % bootstrap intervals of 1,000 resamples.
    Tasks are those of lm-evaluation-harness, by name or in files of your own.

    \b
    Example:
    llmcurate evaluate model --on news=news.jsonl --on quiz=quiz.jsonl --json
    llmcurate evaluate model --on lambada=lambada.jsonl --last-word
    llmcurate evaluate model --task hellaswag --task arc_easy --few-shot 5
    """
    import tempfile

    from curate.api.model_settings import Evaluate
    from curate.cli.training import say_checkpoint
    from curate.formats.folders import require_kind
    from curate.products.eval_texts import (
        are_shards,
        as_shards,
        named_paths,
        texts_of,
        words_and_lines,
    )

    folder = newest("model", model, "MODEL")
    require_kind(folder, "model", "transformers")
    chosen = Evaluate.of(**settings)
    paths = named_paths([*(named or []), *chosen.on])
    if not (paths or chosen.task):
        raise UsageError("name the texts or tasks: --on NAME=PATH or --task NAME")
    with needs_training(), tempfile.TemporaryDirectory(prefix="llmcurate-evaluate-") as place:
        from train.evaluate.judge import judge, open_model
        from train.evaluate.questions import are_questions, last_words, read_questions

        say_checkpoint(folder, chosen.checkpoint, quiet or as_json, chosen.device)
        judged = open_model(folder, device=chosen.device, which=chosen.checkpoint)
        documents = {n: p for n, p in paths.items() if not are_questions(Path(p))}
        asked = {n: read_questions(Path(p)) for n, p in paths.items() if n not in documents}
        if chosen.last_word:
            for name, path in documents.items():
                of_path = list(texts_of(path, reading(read)))
                asked[name] = last_words(of_path, path)
                if single := len(of_path) - len(asked[name]):
                    left = f"{path}: left out {counted(single, 'text')} with no space between words"
                    say(left, quiet)
            documents = {}
        texts = {
            name: as_shards(
                path,
                judged.tokenizer_file,
                Path(place) / name,
                lambda line: say(line, quiet),
                read=reading(read),
            )
            for name, path in documents.items()
        }
        words = {
            name: sum(map(words_and_lines, texts_of(path, reading(read))))
            for name, path in documents.items()
            if not are_shards(path)
        }
        figures = judge(
            judged,
            texts=texts,
            questions=asked,
            words=words,
            context=chosen.context,
            batch_rows=chosen.batch,
            precision=chosen.precision,
            seed=chosen.seed,
        )
        if chosen.task:
            with needs_harness():
                from train.evaluate.harness import HarnessModel, run_tasks

                scored = run_tasks(
                    HarnessModel(
                        judged,
                        batch_size=chosen.batch,
                        precision=chosen.precision,
                        max_length=chosen.context,
                    ),
                    chosen.task,
                    folder=chosen.task_folder,
                    few_shot=chosen.few_shot,
                    limit=chosen.limit,
                    seed=chosen.seed,
                )
            figures = replace(figures, tasks=scored)
    print_result(figures, evaluation_text(figures), as_json)
    is_ours = (folder / "checkpoints").is_dir()
    following = ("generate", "--model", folder) if is_ours else ("import", folder, "-o", "model")
    suggest(*following, quiet=quiet or as_json)


def evaluation_text(figures: Judgement) -> str:
    from llmcurate.base.pages.html import plain

    texts, questions = [], []
    for name, own in figures.texts.items():
        by_word = "-" if own.word_perplexity is None else f"{own.word_perplexity:,.4g}"
        bounds = _bounds(own.bits_per_byte_interval)
        texts.append([plain(name, 48), *_cells(own), bounds, by_word])
        texts += [[f"  {plain(n, 46)}", *_cells(s), "", ""] for n, s in own.sources.items()]
    score: Any
    for name, score in figures.questions.items():
        questions.append(
            [
                plain(name, 48),
                f"{score['questions']:,}",
                f"{score['accuracy']:.3f}",
                _bounds(score["accuracy_interval"]),
                f"{score['perplexity']:,.4g}",
                f"{score['log_likelihood']:.3f}",
                f"{score['bits_per_byte']:.3f}",
            ]
        )
    lines = []
    if texts:
        head = ["text", "documents", "tokens", "loss", "bits/byte", "95 %", "perplexity/word"]
        lines += table(head, texts)
    if questions:
        head = ["questions", "number", "accuracy", "95 %", "perplexity", "log-likelihood"]
        lines += table([*head, "bits/byte"], questions)
    if figures.tasks:
        lines += table(["task", "measure", "figure", "standard error"], _task_rows(figures.tasks))
    return "\n".join(lines)


def _task_rows(tasks: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return rows (task, measure, value, standard error). lm-evaluation-harness names a value and
    its standard error by measure and filter: `acc,none` and `acc_stderr,none`."""
    rows = []
    for task, measures in tasks.items():
        for key, value in measures.items():
            measure, comma, filter_name = key.partition(",")
            if not comma or measure.endswith("_stderr"):
                continue
            error = measures.get(f"{measure}_stderr,{filter_name}")
            shown = measure if filter_name == "none" else f"{measure} ({filter_name})"
            cells = ("-" if not isinstance(v, (int, float)) else f"{v:.4g}" for v in (value, error))
            rows.append([task, shown, *cells])
    return rows


def _cells(score: Score) -> list[str]:
    bits = score.bits_per_byte  # None if the bytes of the text are not known
    shown = "-" if bits is None else f"{bits:.3f}"
    return [f"{score.documents:,}", f"{score.tokens:,}", f"{score.loss:.3f}", shown]


def _bounds(interval: list[float] | None) -> str:
    return "" if interval is None else " to ".join(f"{bound:.3f}" for bound in interval)


@command(app, "Compare", shared=(*EXPERIMENT, "dry_run"), reads=READS_TEXTS, panel="Train")
def compare(
    corpora: Annotated[
        list[str],
        typer.Argument(
            metavar="CORPUS...",
            help="Corpora to compare, files or runs, as PATH or NAME=PATH; with"
            " --recipes they are recipes. The others are compared with the first.",
        ),
    ],
    out: NewFolder,
    sets: Sets = None,
    trust_code: TrustCode = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Compare corpora, models or settings by training.

    All trainings use the same tokenizer, model, amount of text, seeds and evaluation texts, except
    for what --variant or --set NAME.SECTION.KEY changes. Differences have 95 % intervals over
    documents and seeds. A placebo is trained too: the first corpus in another order. Run the same
    command to resume.

    \b
    Example:
    llmcurate compare kept=out raw=raw.jsonl --on news=news.jsonl --tokens 2M -o help
    llmcurate compare out --variant gelu:model.feed_forward.activation=gelu \\
      --variant lion:pretrain.optimizer=lion,pretrain.lr=0.001 \\
      --on news=news.jsonl --flops 1e13 -o variants
    llmcurate compare --recipes c4 c4-unfiltered --input crawl/ --on wiki=wiki.jsonl \\
      --minutes 20 -o help
    """
    from curate.api.model_settings import Compare
    from curate.engines.base import check_engine
    from curate.products.eval_texts import named_paths

    chosen = Compare.of(**settings)
    check_engine(options.engine, options.address)
    if options.engine == "slurm":
        raise UsageError("--engine slurm: an experiment runs with --engine local or ray")
    with needs_training():
        from curate.experiment.compare import describe, run_experiment
        from curate.experiment.corpora import named_corpora
        from curate.run.records import Options

        named = named_corpora(corpora, chosen.input, chosen.recipes, chosen.variant)
        scored = named_paths(chosen.on)
        changes = [*(sets or ()), *read_changes(options.read)]
        if options.dry_run:
            echo("\n".join(describe(named, scored, chosen, changes)))
            return
        run = Options(options.workers, options.quiet, options.engine, options.address)
        experiment = run_experiment(named, scored, out, chosen, changes, run)
        experiment.show(out, options.as_json)
    best = min(experiment.corpora, key=lambda row: row.score.mean)
    words = ["tokenizer", "train", *best.inputs, "-o", "tokenizer"]
    of_training = all(key.startswith(("model", "pretrain.")) for key in best.settings)
    if chosen.variant:
        changed = [
            f"--set={key}={json.dumps(value) if not isinstance(value, str) else value}"
            for key, value in best.settings.items()
        ]
        words = ["pretrain", *best.inputs, *changed, "-o", "model"]
    suggest(*words, quiet=options.quiet or options.as_json or not of_training)
