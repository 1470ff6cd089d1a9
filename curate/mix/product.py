"""The product `mix`: a corpus of several sources in given proportions, shuffled.

A mix is a product, not a step on documents: such a step sees one partition and keeps or drops each
document once, while a mix repeats documents and orders all of them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from curate.mix.settings import MixSettings
from curate.steps.contracts import ProductContext, step
from llmcurate.base.disk.files import remove


@step("mix")
class Mix(MixSettings):
    """Mix sources by weights and epochs, in a random order drawn from a seed."""

    makes: ClassVar[str] = "corpus"

    def build(self, context: ProductContext) -> dict[str, Any]:
        from curate.mix.make import make, prepare
        from curate.mix.sources import own_corpus
        from curate.mix.spill import Copy

        name = "mix" if context.beside else "corpus"
        for old in (context.out / "mix", context.out / "corpus"):
            remove(old, inside=context.out)
        scratch = context.out / ".scratch-mix"
        remove(scratch, inside=context.out)
        scratch.mkdir(parents=True)
        try:
            sources = self.opened() if self.sources else [own_corpus("corpus", context.corpus)]
            copy = Copy(scratch / "sources")
            prepared = prepare(self, sources, scratch, context.say, copy)
            return make(self, prepared, copy, context.out / name, context)
        finally:
            remove(scratch, inside=context.out)
