"""The three contracts, Step, CorpusStep and Product, and the registry of their names.

A step is a frozen pydantic model: its fields are the recipe's keys. Names map to classes lazily,
so listing them imports nothing; other distributions add steps by the entry point group
`llmcurate.steps` (name = "module:Class").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from curate.disk.digests import file_digest
from curate.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.corpus.sketches import Sketches
    from curate.documents.documents import Documents
    from curate.documents.limits import Limit


class Settings(BaseModel):
    """What every step is: named settings that never change after they were checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when the same settings decide otherwise than before
    # Whether it leaves texts as they are, and marks a document whatever else marked it.
    only_measures: ClassVar[bool] = False
    _label: str | None = PrivateAttr(default=None)

    @property
    def label(self) -> str:
        """The name that reasons and columns carry; `name#2` for a second one in a recipe."""
        return self._label or self.name

    def named(self, label: str) -> Any:
        """The same step under another label."""
        self._label = label
        return self

    @classmethod
    def fitting(cls, settings: dict[str, Any]) -> type[Settings]:
        """The class for these settings, where a name stands for steps of two kinds."""
        return cls

    def identity(self) -> dict[str, Any]:
        """What decides this step's output: label, version, settings and the content of the files
        it reads, for the stage's hash."""
        found: dict[str, Any] = {
            "step": self.name,
            "label": self.label,
            "version": self.version,
            "settings": self.model_dump(mode="json"),
        }
        resources = self.resources()
        if resources:
            found["resources"] = [digest(self.label, r) for r in resources]
        return found

    def resolved(self) -> dict[str, Any]:
        """The settings as OUT/recipe.yaml has them, defaults included; they hold elsewhere too."""
        return self.model_dump(mode="json")

    def resources(self) -> list[str]:
        """Files whose content decides this step's output: word lists, models."""
        return []

    def forecast(self) -> list[str]:
        """What these settings are expected to do, for a user who is about to run them."""
        return []

    def notes(self) -> list[str]:
        """What the report must say of these settings, such as a rule that is skipped."""
        return []

    def limits(self) -> list[Limit]:
        """The rules that compare a column of this step with a setting, in the order of marking.
        Rules that are not among them are decided otherwise, and mark before these."""
        return []

    def explain(self, text: str) -> list[str]:
        """What in a text moved this step's measure most, one line each, for `llmcurate explain`;
        called on a step that was not opened. UsageError where what it needs is gone."""
        return []


def digest(label: str, location: str) -> str:
    """xxh3-128 of a local file's content; of a URL, whose content is pinned by its own sha256 in
    the settings, the URL. UsageError where the file cannot be read."""
    if "://" in location:
        return location
    try:
        return file_digest(location, "xxh3-128")
    except OSError as error:
        raise UsageError(f"{label}: cannot read {location}: {error.strerror}") from None


def sha256(path: Path) -> str:
    """Of a small file's content. UsageError where it cannot be read."""
    try:
        return file_digest(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


class Step(Settings):
    """Documents in, Documents out; pure: no files, no globals, no clock."""

    @property
    def by_id(self) -> bool:
        """Whether ids decide, so that it waits for the stage after which they are settled."""
        return False

    @property
    def before_extract(self) -> bool:
        """Whether it reads pages as they came, which `extract` turns into text."""
        return False

    def open(self) -> None:
        """Loads models and compiles patterns, once a worker, before the first batch."""

    def prepared(self, folder: Path) -> Path | None:
        """A file that `prepare` writes in the stage's folder for all workers; None for none."""
        return None

    def prepare(self, file: Path) -> dict[str, Any]:
        """Does once, before workers open the step, what each would do again; returns of what it
        reads, for the report: corrupt (how many places), places (the first: file, offset, what)."""
        raise NotImplementedError

    def open_in(self, folder: Path) -> None:
        """As `open`, in a stage's folder, where what was prepared stands."""
        self.open()

    def apply(self, docs: Documents) -> Documents:
        """The batch after this step; called on `docs.within(self.label)`."""
        raise NotImplementedError


class CorpusStep(Settings):
    """What needs the whole corpus: sketch (map), resolve (once, out of core), apply (map)."""

    @property
    def reach(self) -> Literal["own", "one", "cluster", "any"]:
        """What one document more, or one less, changes of the others (inspect/whatif/dedups.py).
        own: nothing. one: of documents with one key one stays. cluster: documents stay or go with
        those that they are connected with, and one document connects whatever it matches. any: who
        knows."""
        return "any"

    def open(self) -> None:
        """As for a Step."""

    def sketch_identity(self) -> dict[str, Any]:
        """What decides the sketches: a part of `identity()`. Settings that only `resolve` and
        `apply` use are absent, so that another value of them does not sketch again."""
        return self.identity()

    def folder_identity(self) -> dict[str, Any]:
        """What decides the content of the step's own folder: a part of `identity()`. Settings that
        `resolve` uses after what it keeps there are absent."""
        return self.identity()

    def comparable(self) -> dict[str, Any] | None:
        """The settings that this step and the index of an earlier run must share; None: the step
        leaves no index."""
        return None

    def leaves(self) -> list[str]:
        """Names of files that `resolve` leaves in the step's own folder for OUT."""
        return []

    def sketch(self, docs: Documents) -> pa.Table:
        """One row a document, in order; what resolve needs to know of it. What it needs of parts
        of a document is a list column."""
        raise NotImplementedError

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        """Writes sketches.decisions, a parquet file sorted by part, n with at least the columns
        part, n, drop (bool) and those of OUT/decisions.parquet. Returns counts for the report.

        One row a document that it decides on, or, with span_start and span_end, one a passage:
        `drop` then means that passage.
        """
        raise NotImplementedError

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        """The batch after the decisions on its documents (rows of this batch only)."""
        raise NotImplementedError


# Calls "module:function" with a payload of JSON values in a process of its own, whose environment
# has these variables beside this process's; returns what it returns.
CallApart = Callable[[str, dict[str, Any], Mapping[str, str]], dict[str, Any]]


@dataclass
class ProductContext:
    """What a product is built from and where."""

    out: Path  # an own empty or resumed folder, committed by the run
    # What was kept, in batches: id, source, lang and text, or all columns with corpus(None).
    corpus: Callable[..., Iterator[pa.RecordBatch]]
    call_apart: CallApart
    inputs: dict[str, Path] = field(default_factory=dict)  # earlier products: kind -> folder
    fresh: bool = False  # what lies in `out` is of other settings
    progress: Callable[[dict[str, Any]], None] = lambda event: None
    say: Callable[[str], None] = lambda line: None  # to whoever watches
    workers: int = 1
    beside: bool = False  # OUT/corpus is there, of steps on documents


class Product(Settings):
    """Corpus to files."""

    makes: ClassVar[str]  # "tokenizer", "shards", "model"
    needs: ClassVar[tuple[str, ...]] = ()
    reads_corpus: ClassVar[bool] = True

    def lineage(self) -> dict[str, Any] | None:
        """Of a product made in OUT itself: the part of `identity()` that must be equal for it to go
        on from what stands there unfinished or made under other settings; None: all of it."""
        return None

    def own_files(self) -> list[str]:
        """Paths of input files that it names itself, as fsspec opens them."""
        return []

    def build(self, context: ProductContext) -> dict[str, Any]:
        """Writes its files into context.out; returns what the report says of it."""
        raise NotImplementedError


REGISTRY: dict[str, str] = {
    "extract": "curate.extract.step:Extract",
    "c4": "curate.filters.c4:C4",
    "c4_paragraphs": "curate.filters.c4_paragraphs:C4Paragraphs",
    "refinedweb_lines": "curate.filters.refinedweb:RefinedWebLines",
    "gopher_quality": "curate.filters.gopher_quality:GopherQuality",
    "gopher_repetition": "curate.filters.gopher_repetition:GopherRepetition",
    "fineweb_quality": "curate.filters.fineweb:FineWebQuality",
    "document_length": "curate.filters.length:DocumentLength",
    "url_filter": "curate.filters.url:UrlFilter",
    "pii": "curate.filters.pii:Pii",
    "opt_out": "curate.filters.opt_out:OptOut",
    "newline_runs": "curate.filters.newlines:NewlineRuns",
    "wangchanberta": "curate.filters.wangchanberta:WangchanBERTa",
    "language": "curate.scoring.language.step:Language",
    "quality": "curate.scoring.quality.step:Quality",
    "dedup_exact": "curate.dedup.exact:DedupExact",
    "dedup_minhash": "curate.dedup.minhash.step:DedupMinhash",
    "dedup_bloom": "curate.dedup.bloom.step:DedupBloom",
    "dedup_passages": "curate.dedup.passages.step:DedupPassages",
    "dedup_semantic": "curate.dedup.semantic.step:DedupSemantic",
    "dedup_suffix_array": "curate.dedup.suffix_array.step:DedupSuffixArray",
    "decontaminate": "curate.dedup.decontaminate.step:Decontaminate",
    "perplexity": "curate.scoring.perplexity.step:Perplexity",
    "mix": "curate.mix.step:Mix",
    "export": "curate.products.export:Export",
    "tokenizer": "curate.products.tokenizers:TokenizerProduct",
    "shards": "curate.products.tokenizers:ShardsProduct",
    "pretrain": "curate.products.pretraining:PretrainProduct",
    "search_index": "curate.products.search_index:SearchIndexProduct",
    "language_model": "curate.products.language_model:LanguageModel",
    "perplexity_model": "curate.products.perplexity_model:PerplexityModel",
}


def step_names() -> list[str]:
    """All known names, those of installed plug-ins included."""
    return sorted({*REGISTRY, *_plugins()})


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {p.name: p.value for p in entry_points(group="llmcurate.steps")}


def step_class(name: str) -> type[Settings]:
    """The class behind a name; UsageError names the nearest one."""
    location = REGISTRY.get(name) or _plugins().get(name)
    if location is None:
        near = get_close_matches(name, step_names(), 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(step_names())}"
        raise UsageError(f"unknown step {name!r}{hint}")
    module, _, attribute = location.partition(":")
    cls: type[Settings] = getattr(importlib.import_module(module), attribute)
    return cls
