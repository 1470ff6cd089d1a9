"""`llmcurate mix search`: find the mixture with the lowest loss of small models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from curate.cli.mix import mix_app
from curate.cli.options import EXPERIMENT, CommandOptions, NewFolder, Sets, TrustCode, read_changes
from curate.cli.settings import READS_TEXTS, command
from curate.products.needs import needs_training
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo


@command(mix_app, "MixSearch", "search", shared=(*EXPERIMENT, "dry_run"), reads=READS_TEXTS)
def search(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Sources, as PATH or NAME=PATH: token shards of the same tokenizer, or documents"
            " or runs.",
        ),
    ],
    out: NewFolder,
    sets: Sets = None,
    trust_code: TrustCode = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Find the best mixture of sources for a target text.

    Small models are trained on random mixtures around the natural one (by size); a regression from
    shares to bits per byte (RegMix, Liu et al. 2024) predicts the best mixture within the allowed
    epochs. Run the same command to resume; finished runs are reused if you add sources or --runs.

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
        raise UsageError("--engine slurm: mix search runs with --engine local or ray")
    sources = {name: paths[0] for name, paths in named(inputs).items()}
    weights = pairs("--on-weights", chosen.on_weights)
    if options.dry_run:
        runs = f"{counted(chosen.runs, 'mixture')} of {', '.join(sources)}"
        echo(f"would train {chosen.model} on {runs}, each {counted(chosen.tokens, 'token')}")
        return
    with needs_training():
        from curate.lab.mixtures import search_mixture
        from curate.run.records import Options

        found = search_mixture(
            sources,
            named_paths(chosen.on),
            weights,
            out,
            chosen,
            [*(sets or ()), *read_changes(options.read)],
            Options(options.workers, options.quiet, options.engine, options.address),
        )
        found.show(out, options.as_json)
