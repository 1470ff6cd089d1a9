"""Make indexes of earlier documents, with which dedup steps compare new documents.

The setting `against` of a dedup step names the earlier documents. The step runs alone over these
documents, in a folder of the cache that is named by a digest of input and settings. A killed run
continues there. At the end, only the index is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from curate.corpus import indexes
from curate.run.plan import EarlierDocuments, RunPlan
from curate.run.records import Options, Outcome
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.store import LOCAL, using
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed
from llmcurate.base.terminal import say

Run = Callable[[RunPlan, Path, Options, Callable[..., Callable[[], None]]], Outcome]


def make_index(earlier: EarlierDocuments, run: Run, options: Options) -> None:
    """Make the index of the earlier documents unless it exists, and pass it to the dedup step."""
    folder, key = earlier.index.folder, earlier.index.digest
    out = folder.parent.parent
    if not indexes.is_complete(folder, key):
        remove(folder, inside=out)
        say(f"{earlier.against}: making an index of its documents, once", options.quiet)
        alone = replace(options, restart=None, published=False)
        if options.published:  # other machines do not see the cache of this one
            alone = replace(alone, engine="local", address=None, slurm=())
        with using(LOCAL):
            totals = run(earlier.plan, out, alone, lambda *report: lambda: None).totals()
        say(f"{earlier.against}: {counted(totals.read, 'document')} indexed", options.quiet)
    for path in out.iterdir():
        if path.name != indexes.FOLDER:
            remove(path, inside=out)
    record = indexes.record_of(folder)
    if record is None:
        raise RunFailed(f"{folder} is damaged; run again to rebuild it")
    earlier.step.take_index(earlier.against, replace(earlier.index, record=record))
