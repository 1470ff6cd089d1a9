"""`llmcurate mix search`: the mixture whose small models lose least."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from curate.cli.mix import mix_app
from curate.cli.options import (
    EXPERIMENT,
    CommandOptions,
    NewFolder,
    Sets,
    TrustCode,
    read_changes,
)
from curate.cli.settings import READS_TEXTS, command
from curate.products.needs import needs_training
from llmcurate.base.errors import UsageError


@command(mix_app, "MixSearch", "search", shared=EXPERIMENT, reads=READS_TEXTS)
def search(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Sources, as PATH or NAME=PATH: token shards of one tokenizer, or documents or"
            " runs, which one tokenizer encodes.",
        ),
    ],
    out: NewFolder,
    on: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME=PATH",
            help="Text that the mixture is to be good for: documents that llmcurate reads."
            " [repeatable]",
        ),
    ] = None,
    text_weights: Annotated[
        Optional[list[str]],
        typer.Option(
            "--on-weights",
            metavar="NAME=WEIGHT,...",
            help="Weights of the texts' bits a byte. Without any, by their bytes.",
        ),
    ] = None,
    sets: Sets = None,
    trust_code: TrustCode = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Search the mixture of sources that a text asks for.

    Small models are trained on mixtures drawn about the natural one; a regression from shares to
    bits a byte (RegMix, Liu et al. 2024) predicts the best mixture within the epochs that sources
    may have. Stopped, the same command goes on; runs stay when sources or --runs are added.

    \b
    Example:
    llmcurate mix search web=web.jsonl wiki=wiki.jsonl --on news=news.jsonl --tokens 500000 \\
      --total 1e9 -o search
    """
    from curate.api.model_settings import MixSearch
    from curate.engines.base import check_engine
    from curate.mix.settings import pairs
    from curate.mix.sources import named
    from curate.products.eval_texts import named_paths

    chosen = MixSearch.of(**settings)
    check_engine(options.engine, options.address)
    if options.engine == "slurm":
        raise UsageError("--engine slurm: small models are trained by local or ray")
    sources = {name: paths[0] for name, paths in named(inputs).items()}
    weights = pairs("--on-weights", text_weights or [])
    with needs_training():
        from curate.experiment.runs import Place
        from curate.lab.mixtures import search_mixture

        place = Place(options.engine, options.address, options.workers, options.quiet)
        found = search_mixture(
            sources,
            named_paths(on or []),
            weights,
            out,
            chosen,
            [*(sets or ()), *read_changes(options.read)],
            place,
        )
        found.show(out, options.as_json)
