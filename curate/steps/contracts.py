"""The three contracts: Step, CorpusStep and Product.

A step is a frozen pydantic model, whose fields are the recipe's keys. A field says its type, its
limits and, in whole sentences, what it means: the schema, the reference page and the options of the
command line are made from it.
"""

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
    """All that decides a step's output. contents: digests of what lies outside the settings."""

    step: str
    label: str
    version: int
    settings: dict[str, Any]
    contents: dict[str, Any]

    @classmethod
    def of(cls, *, step: str, label: str, version: int, settings: Any, **contents: Any) -> Identity:
        """Return the identity of these values."""
        return cls(step, label, version, settings, contents)

    @property
    def values(self) -> dict[str, Any]:
        """The JSON values of it, for the hash of a stage."""
        values = {**vars(self), **self.contents}
        del values["contents"]
        return values

    def without(self, names: Iterable[str]) -> Identity:
        """Return an identity without some settings."""
        return replace(self, settings={k: v for k, v in self.settings.items() if k not in names})


class Settings(BaseModel):
    """The base of all steps: named settings that do not change once they are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # where the method, or its code, was published
    version: ClassVar[int] = 1  # raised where the same settings give another output than before
    # Whether the step leaves texts as they are, and marks a document whatever else marked it.
    only_measures: ClassVar[bool] = False
    decide_nothing: ClassVar[frozenset[str]] = frozenset()  # settings such as memory
    described_in: ClassVar[type | None] = None  # the dataclass whose settings it shares
    # The setting that a recipe may give alone, as `- python: my_rules.py:keep` does.
    plain_setting: ClassVar[str | None] = None
    _label: str | None = PrivateAttr(default=None)

    _numbers = field_validator("*")(within_64_bits)
    _counts = field_validator("*", mode="before")(read_counts)

    @property
    def label(self) -> str:
        """The name that reasons and columns carry; `name#2` for a second one in a recipe."""
        return self._label or self.name

    def named(self, label: str) -> Any:
        """The same step under another label."""
        self._label = label
        return self

    def identity(self) -> Identity:
        """All that decides the step's output, with a digest of a plug-in's own source."""
        settings = self.model_dump(mode="json", exclude={*self.decide_nothing})
        source = source_of(self)
        contents = {"source": source} if source else {}
        return Identity(self.name, self.label, self.version, settings, contents)

    def as_found(self) -> dict[str, str]:
        """What the environment decides of the settings, for a recipe that is run elsewhere."""
        return {}

    def resolved(self) -> dict[str, Any]:
        """The settings with their defaults, as OUT/recipe.yaml has them. Paths hold anywhere."""
        return self.model_dump(mode="json") | self.as_found()

    def notes(self) -> list[str]:
        """Lines that the report must hold on the settings, such as a rule that is skipped."""
        return []

    def at_hand(self) -> Self:
        """The step as it can run here: without published lists that are not here and cannot be
        fetched, which one line says. So the settings say what decided."""
        return self

    def limits(self) -> list[Limit]:
        """The rules that compare a column of this step with a setting, in the order of marking.
        Rules of other kinds mark before them."""
        return []


class FromFiles(Settings):
    """A step whose output depends on files that its settings name: word lists, models."""

    def resources(self) -> list[str]:
        """The files whose content decides the step's output. UsageError where one is not there."""
        return []

    def to_fetch(self) -> list[str]:
        """Files that a run fetches before it plans, since their content decides the output."""
        return []

    def identity(self) -> Identity:
        """With digests of the files."""
        identity = super().identity()
        if files := self.resources():
            identity.contents["resources"] = [digest(self.label, file) for file in files]
        return identity


class NamesCode(Settings):
    """A step that runs Python which the recipe names."""

    def named_code(self) -> str | None:
        """The code that workers run, for messages; None where these settings name none."""
        raise NotImplementedError

    def own_source(self) -> str | None:
        """A digest of the source where the settings name it; else of the step's module."""
        return _module_digest(type(self))


class Forecasts(Settings):
    """A step that can say beforehand what its settings do."""

    def forecast(self) -> list[str]:
        """Lines on the expected effect of the settings, for a user who is about to run them."""
        raise NotImplementedError


class Explains(Settings):
    """A step that can say why a text has its measure."""

    def explain(self, text: str) -> list[str]:
        """Lines on what in a text moved this step's measure most, for `llmcurate explain`. The step
        need not be open. UsageError where a file that it needs is gone."""
        raise NotImplementedError


class SaysOfDecisions(Settings):
    """A step whose decisions read otherwise than those on copies."""

    def said(self, decision: Decision) -> str | None:
        """The decision in words, behind the document's or the passage's name, for `llmcurate
        explain`; None where it is one on a copy."""
        raise NotImplementedError


class Kinds(Settings):
    """One name for steps of two kinds."""

    @classmethod
    def fitting(cls, settings: Mapping[str, Any]) -> type[Settings]:
        """The class for some settings."""
        raise NotImplementedError


class Nested(Settings):
    """A step that has settings within settings."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """The settings that a `--set` may name, those within others by dotted names."""
        raise NotImplementedError


def files_of(step: Settings) -> list[str]:
    """The files that a step depends on."""
    return step.resources() if isinstance(step, FromFiles) else []


def to_fetch(steps: Iterable[Settings]) -> list[str]:
    """Files that are to be fetched before a run of these steps is planned."""
    return [file for s in steps if isinstance(s, FromFiles) for file in s.to_fetch()]


def code_of(step: Settings) -> str | None:
    """The Python that a recipe names for this step, for messages; None where it names none."""
    return step.named_code() if isinstance(step, NamesCode) else None


def source_of(step: Settings) -> str | None:
    """A digest of the step's source; None where that is curate's, which has a version."""
    if isinstance(step, NamesCode):
        return step.own_source()
    return _module_digest(type(step))


def _module_digest(kind: type[Settings]) -> str | None:
    """A digest of a plug-in's module and of what it imports from its own package."""
    if kind.__module__.startswith("curate."):
        return None
    from curate.steps.functions import source_digest

    return source_digest(kind.__module__)


def is_ours(step: Settings) -> bool:
    """Return whether all that the step runs is curate's."""
    return not source_of(step) and not code_of(step)


def fitting(kind: type[Settings], settings: Mapping[str, Any]) -> type[Settings]:
    """The class for some settings, where one name stands for steps of two kinds."""
    return kind.fitting(settings) if issubclass(kind, Kinds) else kind


def setting_names(kind: type[Settings]) -> list[str]:
    """The settings of a step that a `--set` may name."""
    return kind.setting_names() if issubclass(kind, Nested) else list(kind.model_fields)


Kind = TypeVar("Kind", bound="type[Settings]")


def step(
    name: str,
    *,
    methods: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    similarity: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Kind], Kind]:
    """Gives a class the name that recipes write; the registry finds the class by this line, and
    reads the rest of it there.

    methods: those of `llmcurate dedup --method` that it is a step of, with its settings then.
    similarity: the meaning of similarities in its decisions, by the name of the method there, or
    by what stands before the colon in it.
    """

    def named(kind: Kind) -> Kind:
        kind.name = name
        return kind

    return named


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
        """Return whether it needs final ids, so that it waits for the stage that assigns them."""
        return False

    @property
    def before_extract(self) -> bool:
        """Return whether it reads pages as they came, before `extract` makes text of them."""
        return False

    def open(self) -> None:
        """Loads models and compiles patterns, once a worker, before the first batch."""

    def apply(self, docs: Documents) -> Documents:
        """The batch after this step; the argument is `docs.within(self.label)`."""
        raise NotImplementedError


class Prepared(Step):
    """A step on documents of which a part is done once, for all workers, before they open it."""

    def prepared(self, folder: Path) -> Path | None:
        """The file that `prepare` writes in the stage's folder; None where there is nothing to
        do."""
        raise NotImplementedError

    def prepare(self, file: Path) -> tuple[int, list[dict[str, int | str | None]]]:
        """Writes the file. Returns what the report says of the files that it reads: the number of
        places that are corrupt, and the first ones (file, offset, what)."""
        raise NotImplementedError

    def open_in(self, folder: Path) -> None:
        """Opens the step in a stage's folder, which holds the prepared file."""
        raise NotImplementedError


def open_in(step: Step, folder: Path) -> None:
    """Opens a step in a stage's folder."""
    if isinstance(step, Prepared):
        step.open_in(folder)
    else:
        step.open()


class CorpusStep(Settings):
    """A step on the whole corpus: sketch (map), resolve (once, out of core), apply (map)."""

    # The module that `resolve` loads, where that takes long: while workers are at the sketches.
    decided_by: ClassVar[str | None] = None
    # Whether an index holds all that those before it hold, so that only the last one is needed.
    cumulative: ClassVar[bool] = False
    # Whether `resolve` reads sketches in tasks alone, and not the view of all of them; if it has to
    # do without tasks, it calls `Sketches.make_view` first.
    in_tasks: ClassVar[bool] = False
    # Settings that only `resolve` and `apply` use, so that another value of them does not sketch
    # again; those that `resolve` uses once the step's own folder has its content.
    after_sketches: ClassVar[frozenset[str]] = frozenset()
    after_folder: ClassVar[frozenset[str]] = frozenset()

    @property
    def meets_by(self) -> str | None:
        """The column of sketches, of one key or several of 8 bytes, by which documents meet: those
        that share none, directly or over others, do not change each other's decisions. "": each is
        decided on by itself; None: any may matter."""
        return None

    @property
    def obstacle(self) -> str | None:
        """Why a refresh cannot decide on new documents alone, in order of arrival; None where it
        can."""
        return "it decides by the whole corpus"

    @property
    def replaces(self) -> bool:
        """Return whether a document may go for one that comes in a later run. The step leaves
        `superseded.parquet` (id, by) in its index then."""
        return False

    @property
    def dated(self) -> bool:
        """Return whether the newest of copies stays."""
        return False

    @property
    def most_removed(self) -> float | None:
        """The largest share that it may remove, of documents or of bytes; None for any."""
        return None

    def arriving(self, earlier: Sequence[str]) -> CorpusStep:
        """The step as a refresh has it: over new documents alone, what came first stays. earlier:
        folders of the runs before, the oldest first."""
        return self

    def earlier(self) -> list[Index]:
        """The indexes of earlier runs to compare with; UsageError where one cannot be used."""
        return []

    def open(self) -> None:
        """Loads models and compiles patterns, once a worker, before the first batch."""

    def sketch_identity(self) -> Identity:
        """The part of `identity()` that decides the sketches."""
        return self.identity().without(self.after_sketches)

    def folder_identity(self) -> Identity:
        """The part of `identity()` that decides the content of the step's own folder."""
        return self.identity().without(self.after_folder)

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

    def resolve(self, sketches: Sketches) -> Decided:
        """Writes sketches.decisions and returns what the report says of them.

        The file is parquet, sorted by part and n, with at least the columns part, n, drop (bool)
        and those of OUT/decisions.parquet. A row is a document that the step decides on, or, with
        span_start and span_end, a passage: `drop` then means the passage.
        """
        raise NotImplementedError

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        """The batch after the decisions on its documents (rows of this batch only)."""
        raise NotImplementedError


# Calls "module:function" with a task in a process of its own, whose environment has these variables
# beside this process's.
CallApart = Callable[[str, object, Mapping[str, str]], None]


@dataclass
class ProductContext:
    """The corpus that a product is built from, and its folder."""

    out: Path  # the product's folder, empty or resumed; the run commits it
    # The kept documents in batches: id, source, lang and text, or all columns with corpus(None).
    corpus: Callable[..., Iterator[pa.RecordBatch]]
    call_apart: CallApart
    inputs: dict[str, Path] = field(default_factory=dict)  # earlier products: kind -> folder
    # How many units of its work are done, a note, and the seconds that are left.
    progress: Callable[[int, str, float | None], None] = lambda done, note, left: None
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

    def lineage(self) -> Identity | None:
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


def with_settings(base: type[Product], kind: Any, **instead: tuple[str, Any, Any]) -> Any:
    """Return a product that has the settings of a dataclass behind those of the base, with the
    dataclass's defaults, limits and descriptions. instead: (name, type, field) of a setting that
    stands in the place of one of the dataclass."""
    fields: Any = {}
    for name, shared in kind.__pydantic_fields__.items():
        name, *field = instead.get(name, (name, shared.annotation, copy(shared)))
        fields[name] = tuple(field)
    product = create_model(base.__name__, __base__=base, __module__=base.__module__, **fields)
    product.described_in = kind
    return product
