"""`llmcurate ablate`: whether a change of the data or of its encoding makes a better model."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    EXPERIMENT,
    CommandOptions,
    NewFolder,
    Sets,
    TrustCode,
    app,
    read_changes,
)
from curate.cli.settings import READS_TEXTS, command
from curate.products.needs import needs_training
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo


@command(app, "Ablate", shared=(*EXPERIMENT, "dry_run"), reads=READS_TEXTS)
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
    texts: Annotated[
        Optional[list[str]],
        typer.Option(
            "--eval",
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
    llmcurate ablate kept=out raw=raw.jsonl --eval news=news.jsonl --tokens 2M -o help
    llmcurate ablate --recipes c4 c4-unfiltered --input crawl/ --eval wiki=wiki.jsonl \\
      --minutes 20 -o help
    llmcurate ablate small=a.jsonl large=a.jsonl --set large.tokenizer.vocab=8192 --epochs 1 \\
      --eval wiki=wiki.jsonl -o vocabularies
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
        scored = named_paths(texts or [])
        if options.dry_run:
            echo("\n".join(describe(named, scored, chosen, sets or [])))
            return
        place = Place(options.engine, options.address, options.workers, options.quiet)
        changes = [*(sets or ()), *read_changes(options.read)]
        run_experiment(named, scored, out, chosen, changes, place).show(out, options.as_json)
