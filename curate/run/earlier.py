"""Documents that `against` names, as the indexes that dedups compare with.

Each is made by a run of that dedup alone over the documents, in a folder of the cache that has the
name of its content: the digest of the input and of the settings. A run that was killed goes on
there. When it is done the sketches stay, and the copy of the documents goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from curate.corpus import indexes
from curate.run.plan import EarlierDocuments, RunPlan
from curate.run.records import Options, Outcome
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed
from llmcurate.base.terminal import say

Run = Callable[[RunPlan, Path, Options, Callable[..., Callable[[], None]]], Outcome]


def make_index(earlier: EarlierDocuments, run: Run, options: Options) -> None:
    """Make the index of the documents unless it exists, and hand it to the dedup."""
    folder, key = earlier.index.folder, earlier.index.digest
    out = folder.parent.parent
    if not indexes.is_complete(folder, key):
        remove(folder, inside=out)
        say(f"{earlier.against}: making an index of its documents, once", options.quiet)
        alone = replace(options, restart=None, published=False)
        totals = run(earlier.plan, out, alone, lambda *report: lambda: None).totals()
        say(f"{earlier.against}: {counted(totals.read, 'document')} indexed", options.quiet)
    for path in out.iterdir():
        if path.name != indexes.FOLDER:
            remove(path, inside=out)
    record = indexes.record_of(folder)
    if record is None:
        raise RunFailed(f"{folder} is not what was written; run again")
    earlier.step.take_index(earlier.against, replace(earlier.index, record=record))
