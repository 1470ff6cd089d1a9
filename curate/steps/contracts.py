"""The three kinds of steps (contracts): Step, CorpusStep and Product. A step is a frozen pydantic
model, and its fields are the keys of the recipe. The fields' types, limits and descriptions make
the schema, the reference page and the command-line options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, create_model, field_validator

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.yaml_file import read_counts, within_64_bits
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import Described

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from curate.corpus.decisions import Decided, Decision
    from curate.corpus.indexes import Index
    from curate.corpus.sketches import Sketches
    from curate.documents.documents import Documents
    from curate.documents.limits import Limit
    from curate.formats.read_settings import ReadSettings


@dataclass
class Identity:
    """Everything that decides a step's output."""

    step: str
    label: str
    version: int
    settings: dict[str, Any]
    contents: dict[str, Any]  # digests of the files and code that the step uses

    @classmethod
    def of(cls, *, step: str, label: str, version: int, settings: Any, **contents: Any) -> Identity:
        return cls(step, label, version, settings, contents)

    @property
    def values(self) -> dict[str, Any]:
        """The fields as JSON values, from which the hash of a stage is computed."""
        values = {**vars(self), **self.contents}
        del values["contents"]
        return values

    def without(self, names: Iterable[str]) -> Identity:
        return replace(self, settings={k: v for k, v in self.settings.items() if k not in names})


class Settings(Described, BaseModel):
    """The base of all steps: named settings that do not change after they are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # where the method, or its code, was published
    version: ClassVar[int] = 1  # raised when the same settings give a different output
    # True if the step never changes texts, and its marks do not depend on those of other steps.
    only_measures: ClassVar[bool] = False
    decide_nothing: ClassVar[frozenset[str]] = frozenset()  # settings that never change the output
    described_in: ClassVar[type | None] = None  # the dataclass that defines its settings
    # The setting whose value a recipe may write directly, as in `- python: my_rules.py:keep`.
    plain_setting: ClassVar[str | None] = None
    _label: str | None = PrivateAttr(default=None)

    _numbers = field_validator("*")(within_64_bits)
    _counts = field_validator("*", mode="before")(read_counts)

    def forecast(self) -> list[str]:
        """Return lines on the expected effect of the settings, shown before a run."""
        return []

    @property
    def label(self) -> str:
        """The step's name in columns and in the reasons of dropped documents: `name`, or `name#2`
        for the second use of the step in a recipe."""
        return self._label or self.name

    def named(self, label: str) -> Any:
        self._label = label
        return self

    def identity(self) -> Identity:
        """Return everything that decides the step's output."""
        settings = self.model_dump(mode="json", exclude={*self.decide_nothing})
        source = source_of(self)
        contents = {"source": source} if source else {}
        return Identity(self.name, self.label, self.version, settings, contents)

    def as_found(self) -> dict[str, str]:
        """Return the settings that depend on the machine, each with its value on this machine."""
        return {}

    def resolved(self) -> dict[str, Any]:
        """Return the settings with their defaults, as written to OUT/recipe.yaml."""
        return self.model_dump(mode="json") | self.as_found()

    def notes(self) -> list[str]:
        """Return lines about the settings for the report, such as a rule that is skipped."""
        return []

    def without_missing_files(self, quiet: bool = False) -> Self:
        """Return the step without the published lists that this machine lacks and cannot download.
        The settings then record the lists that are used, and a message, unless `quiet`, names the
        missing ones."""
        return self

    def limits(self) -> list[Limit]:
        """Return the rules that compare a column of this step with a setting, in order."""
        return []


class FromFiles(Settings):
    """A step whose output depends on files that its settings name: word lists, models."""

    def resources(self) -> list[str]:
        """Return the files whose content decides the output. Raise UsageError for a missing one."""
        return []

    def to_fetch(self) -> list[str]:
        """Return the files to download before planning. Their content decides the output."""
        return []

    def identity(self) -> Identity:
        identity = super().identity()
        if files := self.resources():
            identity.contents["resources"] = [digest(self.label, file) for file in files]
        return identity


class NamesCode(Settings):
    """A step that runs Python code named by the recipe."""

    def named_code(self) -> str | None:
        """Return the name of the recipe's Python code that the step runs, for messages. Return None
        if the recipe names no code for the step."""
        raise NotImplementedError

    def own_source(self) -> str | None:
        """Return a digest of the step's source code."""
        return _module_digest(type(self))


class Explains(Settings):
    """A step that can explain the score of a text."""

    def explain(self, text: str) -> list[str]:
        """Return lines on what changed the score of a text most, for `llmcurate explain`. The step
        need not be open. Raise UsageError if a required file is missing."""
        raise NotImplementedError


class DescribesDecisions(Settings):
    """A step that describes its decisions itself, because they are not about duplicates."""

    def describe(self, decision: Decision) -> str | None:
        """Return the decision in words, to be shown after the name of the document or passage by
        `llmcurate explain`. None if the decision is about a duplicate."""
        raise NotImplementedError


class Kinds(Settings):
    """The base of two step classes with one name. A step's settings select one of the two."""

    @classmethod
    def fitting(cls, settings: Mapping[str, Any]) -> type[Settings]:
        """Return the class that these settings select."""
        raise NotImplementedError


class Nested(Settings):
    """A step with settings that are groups of settings."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the settings that `--set` accepts. Nested settings have dotted names."""
        raise NotImplementedError


def files_of(step: Settings) -> list[str]:
    return step.resources() if isinstance(step, FromFiles) else []


def to_fetch(steps: Iterable[Settings]) -> list[str]:
    return [file for s in steps if isinstance(s, FromFiles) for file in s.to_fetch()]


def code_of(step: Settings) -> str | None:
    return step.named_code() if isinstance(step, NamesCode) else None


def source_of(step: Settings) -> str | None:
    """Return a digest of a step's source code, or None for curate's own steps, which have a
    version."""
    if isinstance(step, NamesCode):
        return step.own_source()
    return _module_digest(type(step))


def _module_digest(kind: type[Settings]) -> str | None:
    if kind.__module__.startswith("curate."):
        return None
    from curate.steps.functions import source_digest

    return source_digest(kind.__module__)


def is_ours(step: Settings) -> bool:
    """Return True if the step runs only code of curate."""
    return not source_of(step) and not code_of(step)


def fitting(kind: type[Settings], settings: Mapping[str, Any]) -> type[Settings]:
    """Return the class of a step with these settings. Usually the class is `kind` itself. If `kind`
    stands for two classes with the same step name (a Kinds), the settings select one of them."""
    return kind.fitting(settings) if issubclass(kind, Kinds) else kind


def setting_names(kind: type[Settings]) -> list[str]:
    return kind.setting_names() if issubclass(kind, Nested) else list(kind.model_fields)


Kind = TypeVar("Kind", bound="type[Settings]")


def step(
    name: str,
    *,
    methods: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    similarity: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Kind], Kind]:
    """Return a decorator that gives a step's class the name that recipes use.

    The registry reads the arguments from the source code. `methods` lists the values of `llmcurate
    dedup --method` that select the step, each with the settings that the value sets. `similarity`
    explains the column `similarity` of OUT/decisions.parquet. Its keys are values of the column
    `method`, or their part before a colon."""

    def named(kind: Kind) -> Kind:
        kind.name = name
        return kind

    return named


def digest(label: str, location: str) -> str:
    """Return the xxh3-128 hash of the local file `location`, or `location` itself if it is a URL
    (the settings pin a URL's content by sha256). Raise UsageError if the file cannot be read."""
    if "://" in location:
        return location
    try:
        return file_digest(location, "xxh3-128")
    except OSError as error:
        raise UsageError(f"{label}: cannot read {location}: {error.strerror}") from None


def sha256(path: Path) -> str:
    """Return the sha256 of a file. Raise UsageError if it cannot be read."""
    try:
        return file_digest(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


class Step(Settings):
    """A pure function from Documents to Documents: no files, no global state, no clock."""

    @property
    def by_id(self) -> bool:
        """Return True if the step needs final ids, so that it runs after they are assigned."""
        return False

    @property
    def before_extract(self) -> bool:
        """Return True if the step reads raw pages, before `extract` turns them into text."""
        return False

    def open(self) -> None:
        """Load models and compile patterns. Called once per worker, before the first batch."""

    def apply(self, docs: Documents) -> Documents:
        """Return the batch after this step. docs: the batch, from `docs.within(self.label)`, so
        that changes to it are recorded under the label of this step."""
        raise NotImplementedError


class Prepared(Step):
    """A step for which one process prepares a file before the workers open the step."""

    def prepared(self, folder: Path) -> Path | None:
        """Return the path of the file that `prepare` writes in the stage's folder, if any."""
        raise NotImplementedError

    def prepare(self, file: Path) -> tuple[int, list[dict[str, int | str | None]]]:
        """Write the prepared file. Return (corrupt, records) for the report: the number of corrupt
        places in the files that were read, and a record of each of the first ones (file, offset,
        error)."""
        raise NotImplementedError

    def open_in(self, folder: Path) -> None:
        """Open the step with its prepared file in a stage's folder."""
        raise NotImplementedError


def open_in(step: Step, folder: Path) -> None:
    if isinstance(step, Prepared):
        step.open_in(folder)
    else:
        step.open()


class CorpusStep(Settings):
    """A step that needs the whole corpus. `sketch` describes each document of a batch. `resolve`
    decides once, from the sketches of all documents. `apply` applies the decisions to each
    batch."""

    # The module of `resolve`, if it loads slowly: it is imported while workers make the sketches.
    decided_by: ClassVar[str | None] = None
    # True if each index includes all earlier ones, so that only the last one is needed.
    cumulative: ClassVar[bool] = False
    # True if `resolve` reads sketches only in tasks and needs no view of all of them. If it cannot
    # use tasks, it calls `Sketches.make_view` first.
    in_tasks: ClassVar[bool] = False
    # Settings used only by `resolve` and `apply`: a change of them does not make new sketches.
    after_sketches: ClassVar[frozenset[str]] = frozenset()
    # Settings that `resolve` uses only after it has filled the step's own folder.
    after_folder: ClassVar[frozenset[str]] = frozenset()

    @property
    def shared_key_column(self) -> str | None:
        """The sketch column that holds a document's keys: one 8-byte value or a list. Documents
        that share no key, directly or through other documents, do not change each other's
        decisions. The value is "" if each document is decided alone, and None if any document may
        change any decision."""
        return None

    @property
    def obstacle(self) -> str | None:
        """The reason why a refresh cannot decide on new documents alone; None if it can."""
        return "it decides by the whole corpus"

    @property
    def replaces(self) -> bool:
        """Return True if a document may be dropped because a later run has a newer version of it.
        The step then writes `superseded.parquet` (id, by) to its index."""
        return False

    @property
    def keeps_newest(self) -> bool:
        """Return True if the newest of several duplicates is kept."""
        return False

    @property
    def most_removed(self) -> float | None:
        """The largest share of documents or bytes that the step may remove; None for no limit."""
        return None

    def arriving(self, earlier: Sequence[str]) -> CorpusStep:
        """Return the step for a refresh. It reads only new documents and keeps the duplicates that
        arrived first. earlier: the folders of the previous runs, the oldest first."""
        return self

    def earlier(self) -> list[Index]:
        """Return the indexes of earlier runs. Raise UsageError if one cannot be used."""
        return []

    def open(self) -> None:
        """Load models and compile patterns. Called once per worker, before the first batch."""

    def sketch_identity(self) -> Identity:
        """Return the part of `identity()` on which the sketches (data per document) depend."""
        return self.identity().without(self.after_sketches)

    def folder_identity(self) -> Identity:
        """Return the part of `identity()` that decides the files in the step's own folder."""
        return self.identity().without(self.after_folder)

    def comparable(self) -> dict[str, Any] | None:
        """Return the settings that must be the same in an earlier index, so that this step can
        compare with it. None if the step leaves no index."""
        return None

    def leaves(self) -> list[str]:
        """Return the names of files in the step's own folder that are linked into OUT."""
        return []

    def sketch(self, docs: Documents) -> pa.Table:
        """Return one row per document, in order, with all that `resolve` needs. Values for parts of
        a document, such as paragraphs, are in columns of lists."""
        raise NotImplementedError

    def resolve(self, sketches: Sketches) -> Decided:
        """Write the file sketches.decisions and return the figures for the report.

        The file is Parquet, sorted by part (partition) and n (number in the partition). It has the
        columns part, n, drop (bool), those of OUT/decisions.parquet, and possibly others. A row
        decides on a document or, if it has span_start and span_end, on this passage only."""
        raise NotImplementedError

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        """Return the batch after the decisions. decisions: only the rows of this batch."""
        raise NotImplementedError


# Calls "module:function" with a task in a separate process. The environment of that process has the
# given variables in addition.
CallApart = Callable[[str, object, Mapping[str, str]], None]


@dataclass
class ProductContext:
    """The corpus that a product is built from, and the product's folder."""

    out: Path  # the product's folder: empty, or with the files of a stopped build
    # The kept documents in batches: id, source, lang and text, or all columns with corpus(None).
    corpus: Callable[..., Iterator[pa.RecordBatch]]
    call_apart: CallApart
    inputs: dict[str, Path] = field(default_factory=dict)  # earlier products: kind -> folder
    # Called with the units of work done, a note, the estimated seconds left, and the total units.
    progress: Callable[[int, str, float | None, int], None] = lambda done, note, left, total: None
    say: Callable[[str], None] = lambda line: None  # prints a line for the user
    workers: int = 1
    beside: bool = False  # True if steps on documents wrote OUT/corpus
    run: Path | None = None  # OUT of the corpus, which may hold indexes of its dedups


@dataclass(frozen=True)
class Estimate:
    """The forecast cost of a product."""

    figures: dict[str, Any]  # JSON values
    lines: list[str]  # text for the user


class Product(Settings):
    """A step that builds files from the corpus: a tokenizer, shards, a model."""

    makes: ClassVar[str]  # "tokenizer", "shards", "model"
    needs: ClassVar[tuple[str, ...]] = ()
    reads_corpus: ClassVar[bool] = True
    in_place: ClassVar[bool] = False  # built in OUT itself, so that a later run can continue it
    resumes: ClassVar[str | None] = (
        None  # pattern of the files from which a stopped build continues
    )
    # The recipe's section `read`; it applies to documents that the settings name.
    _read: ReadSettings | None = PrivateAttr(None)

    def reading(self, read: ReadSettings) -> None:
        self._read = read

    def lineage(self) -> Identity | None:
        """Return the part of `identity()` that must stay the same if a build is to continue from
        the product's files in OUT. None: all of it."""
        return None

    def own_files(self) -> list[str]:
        """Return the input files that the settings name, as paths or URLs for fsspec."""
        return []

    def estimate(self, out: Path, inputs: dict[str, Path], fresh: bool) -> Estimate | None:
        """Return the forecast cost of `build`, or None if it is not known. Raise the errors that
        `build` would raise."""
        return None

    def build(self, context: ProductContext) -> dict[str, Any]:
        """Write files into context.out and return the figures for the report."""
        raise NotImplementedError


def with_settings(base: type[Product], kind: Any, **instead: tuple[str, Any, Any]) -> Any:
    """Return a product class with the settings of `base`, then those of the dataclass `kind`.
    instead: for each setting of `kind` to replace, its new (name, type, field)."""
    fields: Any = {}
    for name, shared in kind.__pydantic_fields__.items():
        name, *field = instead.get(name, (name, shared.annotation, copy(shared)))
        fields[name] = tuple(field)
    product = create_model(base.__name__, __base__=base, __module__=base.__module__, **fields)
    product.described_in = kind
    return product
