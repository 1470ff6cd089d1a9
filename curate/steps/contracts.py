"""The three contracts: Step, CorpusStep and Product.

A step is a frozen pydantic model, whose fields are the recipe's keys. A field says its type, its
limits and, in whole sentences, what it means: the schema, the reference page and the options of the
command line are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, field_validator

from curate.steps.sources import source_digest
from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.yaml_file import within_64_bits
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.corpus.sketches import Sketches
    from curate.documents.documents import Documents
    from curate.documents.limits import Limit
    from curate.formats.read_settings import ReadSettings


class Settings(BaseModel):
    """The base of all steps: named settings that do not change once they are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # where the method, or its code, was published
    version: ClassVar[int] = 1  # raised where the same settings give another output than before
    # Whether the step leaves texts as they are, and marks a document whatever else marked it.
    only_measures: ClassVar[bool] = False
    described_in: ClassVar[type | None] = None  # the dataclass whose settings it shares
    # The setting that a recipe may give alone, as `- python: my_rules.py:keep` does.
    plain_setting: ClassVar[str | None] = None
    _label: str | None = PrivateAttr(default=None)

    _numbers = field_validator("*")(within_64_bits)

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
        """The class for some settings, where one name stands for steps of two kinds."""
        return cls

    @classmethod
    def setting_names(cls) -> list[str]:
        """The settings that a `--set` may name, with those within them by dotted names."""
        return list(cls.model_fields)

    def identity(self) -> dict[str, Any]:
        """All that decides the step's output, for the stage's hash: label, version, settings,
        digests of the files that it reads, and of a plug-in's own source."""
        identity: dict[str, Any] = {
            "step": self.name,
            "label": self.label,
            "version": self.version,
            "settings": self.model_dump(mode="json"),
        }
        if source := self.own_source():
            identity["source"] = source
        resources = self.resources()
        if resources:
            identity["resources"] = [digest(self.label, r) for r in resources]
        return identity

    def resolved(self) -> dict[str, Any]:
        """The settings with their defaults, as OUT/recipe.yaml has them. Paths hold anywhere."""
        return self.model_dump(mode="json")

    def own_source(self) -> str | None:
        """A digest of the step's source; None where that is curate's, which has a version."""
        return source_digest(type(self).__module__)

    def named_code(self) -> str | None:
        """The Python that the recipe names and workers run, for messages; None where none is."""
        return None

    def resources(self) -> list[str]:
        """Files whose content decides the step's output, such as word lists and models."""
        return []

    def to_fetch(self) -> list[str]:
        """Files that a run fetches before it plans, since their content decides the output."""
        return []

    def forecast(self) -> list[str]:
        """Lines on the expected effect of the settings, for a user who is about to run them."""
        return []

    def notes(self) -> list[str]:
        """Lines that the report must hold on the settings, such as a rule that is skipped."""
        return []

    def limits(self) -> list[Limit]:
        """The rules that compare a column of this step with a setting, in the order of marking.
        Rules of other kinds mark before them."""
        return []

    def explain(self, text: str) -> list[str]:
        """Lines on what in a text moved this step's measure most, for `llmcurate explain`. The step
        need not be open. UsageError where a file that it needs is gone."""
        return []


def digest(label: str, location: str) -> str:
    """xxh3-128 of a local file's content. A URL is its own digest: the settings pin its content by
    sha256. UsageError where the file cannot be read."""
    if "://" in location:
        return location
    try:
        return file_digest(location, "xxh3-128")
    except OSError as error:
        raise UsageError(f"{label}: cannot read {location}: {error.strerror}") from None


def sha256(path: Path) -> str:
    """sha256 of a small file's content. UsageError where it cannot be read."""
    try:
        return file_digest(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


class Step(Settings):
    """Documents in, Documents out; pure: no files, no globals, no clock."""

    @property
    def by_id(self) -> bool:
        """Whether it needs final ids, so that it waits for the stage that assigns them."""
        return False

    @property
    def before_extract(self) -> bool:
        """Whether it reads pages as they came, before `extract` makes text of them."""
        return False

    def open(self) -> None:
        """Loads models and compiles patterns, once a worker, before the first batch."""

    def prepared(self, folder: Path) -> Path | None:
        """A file that `prepare` writes in the stage's folder for all workers; None for none."""
        return None

    def prepare(self, file: Path) -> dict[str, Any]:
        """Does once what each worker would do again, before they open the step. Returns what the
        report says of the files that it reads: corrupt (a number) and places (the first ones:
        file, offset, what)."""
        raise NotImplementedError

    def open_in(self, folder: Path) -> None:
        """Opens the step in a stage's folder, which holds the prepared file."""
        self.open()

    def apply(self, docs: Documents) -> Documents:
        """The batch after this step; the argument is `docs.within(self.label)`."""
        raise NotImplementedError


class CorpusStep(Settings):
    """A step on the whole corpus: sketch (map), resolve (once, out of core), apply (map)."""

    # The module that `resolve` loads, where that takes long: while workers are at the sketches.
    decided_by: ClassVar[str | None] = None
    # Whether `resolve` reads sketches in tasks alone, and not the view of all of them; if it has to
    # do without tasks, it calls `Sketches.make_view` first.
    in_tasks: ClassVar[bool] = False

    @property
    def reach(self) -> Literal["own", "one", "cluster", "any"]:
        """The documents whose decisions one document more, or one less, changes
        (inspect/whatif/dedups.py). own: none but its own. one: of the documents with one key, one
        stays. cluster: documents stay or go with their connected component, and a document
        connects all that it matches. any: without a bound."""
        return "any"

    def open(self) -> None:
        """Loads models and compiles patterns, once a worker, before the first batch."""

    def sketch_identity(self) -> dict[str, Any]:
        """The part of `identity()` that decides the sketches. It leaves out the settings that only
        `resolve` and `apply` use, so that another value of them does not sketch again."""
        return self.identity()

    def folder_identity(self) -> dict[str, Any]:
        """The part of `identity()` that decides the content of the step's own folder. It leaves out
        the settings that `resolve` uses later."""
        return self.identity()

    def comparable(self) -> dict[str, Any] | None:
        """The settings that this step and the index of an earlier run must share. None: the step
        leaves no index."""
        return None

    def leaves(self) -> list[str]:
        """Names of files that `resolve` leaves in the step's own folder for OUT."""
        return []

    def sketch(self, docs: Documents) -> pa.Table:
        """One row a document, in order, with all that `resolve` needs of it. Values of parts of a
        document are list columns."""
        raise NotImplementedError

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        """Writes sketches.decisions and returns counts for the report.

        The file is parquet, sorted by part and n, with at least the columns part, n, drop (bool)
        and those of OUT/decisions.parquet. A row is a document that the step decides on, or, with
        span_start and span_end, a passage: `drop` then means the passage.
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
    """The corpus that a product is built from, and its folder."""

    out: Path  # the product's folder, empty or resumed; the run commits it
    # The kept documents in batches: id, source, lang and text, or all columns with corpus(None).
    corpus: Callable[..., Iterator[pa.RecordBatch]]
    call_apart: CallApart
    inputs: dict[str, Path] = field(default_factory=dict)  # earlier products: kind -> folder
    progress: Callable[[dict[str, Any]], None] = lambda event: None
    say: Callable[[str], None] = lambda line: None  # prints a line for the user
    workers: int = 1
    beside: bool = False  # whether steps on documents have left OUT/corpus
    run: Path | None = None  # the OUT whose corpus this is, which may hold indexes of its dedups


@dataclass(frozen=True)
class Estimate:
    """What a product will take. figures: as JSON values; lines: for people."""

    figures: dict[str, Any]
    lines: list[str]


class Product(Settings):
    """A step that makes files of the corpus: a tokenizer, shards, a model."""

    makes: ClassVar[str]  # "tokenizer", "shards", "model"
    needs: ClassVar[tuple[str, ...]] = ()
    reads_corpus: ClassVar[bool] = True
    in_place: ClassVar[bool] = False  # built in OUT itself, where it may be gone on from
    resumes: ClassVar[str | None] = None  # pattern of what a stopped build goes on from
    # The recipe's section `read`, for documents that the settings name.
    _read: ReadSettings | None = PrivateAttr(None)

    def reading(self, read: ReadSettings) -> None:
        """Sets how documents are read that the settings name."""
        self._read = read

    def lineage(self) -> dict[str, Any] | None:
        """The part of `identity()` that must be equal for a product in OUT to go on from the files
        there, unfinished or made under other settings. None: all of it."""
        return None

    def own_files(self) -> list[str]:
        """Paths of input files that the settings name, as fsspec opens them."""
        return []

    def estimate(self, out: Path, inputs: dict[str, Path], fresh: bool) -> Estimate | None:
        """What `build` would take, where that is known before; refuses what it would refuse."""
        return None

    def build(self, context: ProductContext) -> dict[str, Any]:
        """Writes files into context.out; returns the figures for the report."""
        raise NotImplementedError
