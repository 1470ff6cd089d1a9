"""The messages between a run's driver and its workers, and the rows of the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.corpus.sizes import Sizes
from curate.formats.inputs import InputPlan, PlanRest
from curate.formats.read_settings import ReadSettings
from curate.steps.contracts import Settings
from llmcurate.base.disk.seals import Seal, SealedPath
from llmcurate.base.messages import Message, Task

# Ranges of document numbers that stand for loading (before the first document) and for reading.
LOADING, READING = (-2, -2), (-1, -1)


@dataclass(frozen=True)
class StepRecord(Message):
    """A step in the messages to workers."""

    step: str
    label: str  # in the recipe
    settings: dict[str, Any]
    source: str | None = None  # digest of a plug-in's source

    @classmethod
    def of(cls, step: Settings) -> StepRecord:
        identity = step.identity()
        values = (identity.step, identity.label, identity.settings)
        return cls(*values, identity.contents.get("source"))

    @classmethod
    def for_rehearsal(cls, step: Settings) -> StepRecord:
        return cls(step.name, step.label, step.model_dump(mode="json"))


@dataclass(frozen=True)
class Specification(Message):
    """A stage's description for its workers, stored as stage.json. Paths are relative to the folder
    that holds the stages' folders, because that folder's path differs between machines.

    The stage reads its input, removes what the step in the field `apply` has decided to remove,
    runs `steps`, and writes sketches (hashes of documents). From these, the step in the field
    `sketch` decides after the stage."""

    read: ReadSettings
    steps: tuple[StepRecord, ...]
    input: Path | None = None  # folder of the stage before; None for the first stage
    plan: PlanRest | None = None  # the input of the first stage
    ids: Path | None = None  # final ids, read by the second stage
    apply: StepRecord | None = None
    decisions: Path | None = None  # file with the decisions of `apply`
    sketch: StepRecord | None = None
    sketch_kind: str = ""  # kind of the sketch files, in their names
    later: tuple[StepRecord, ...] = ()  # steps of later stages, to compile early (see rehearsal.py)
    of: int = 0  # number of steps in the run
    columns: tuple[str, ...] = ()  # columns of the corpus, for the last stage
    own: tuple[str, ...] = ()  # input columns with a dot in their names

    @classmethod
    def in_folder(cls, folder: Path) -> Specification:
        """Return the specification in a stage's folder. Raises FileNotFoundError if the folder has
        none, and ValueError if it is damaged."""
        for path in sorted(folder.glob("stage*.json")):
            return cls.from_json(path.read_bytes())
        raise FileNotFoundError(folder / "stage.json")

    def inputs(self, folder: Path) -> InputPlan:
        assert self.plan is not None
        return InputPlan.map(folder, self.plan)


@dataclass(frozen=True)
class StageTask(Task):
    """A task to run one partition through a stage. Files that the task reads are listed with size
    and digest."""

    spec: Path  # the stage's specification
    sealed: list[SealedPath] = field(default_factory=list)  # files read by this task
    shared: list[SealedPath] = field(default_factory=list)  # files read by all tasks
    careful: tuple[int, int] | None = None  # first and last document to run alone
    quarantine: dict[int, str] = field(default_factory=dict)  # number of document -> why to skip it


@dataclass(frozen=True)
class CutExample(Message):
    """A passage that a step cut from a document, with the text before and after."""

    key: int  # hash of the document's text; examples with the smallest keys are kept
    before: str
    cut: str  # beginning of the passage
    bytes: int  # size of the whole passage
    after: str
    put: str  # text that replaced the passage


Place = dict[str, int | str | None]  # an unreadable place: file, offset, what and count


@dataclass(frozen=True)
class Counts:
    """Counts of a stage's work. Steps are named by their labels."""

    read: int = 0
    kept: int = 0
    rejected: int = 0
    bytes_in: int = 0
    bytes_out: int = 0  # text of kept documents
    corrupt: int = 0  # places that could not be read
    passed_over: int = 0  # documents outside `read.share`
    bad_dates: int = 0
    digests_compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # by type of record
    primary: dict[str, int] = field(default_factory=dict)  # by rule: first reasons of drops
    reasons: dict[str, int] = field(default_factory=dict)  # by rule: all reasons of drops
    cut: dict[str, int] = field(default_factory=dict)  # by rule: passages cut
    cut_bytes: dict[str, int] = field(default_factory=dict)  # by rule
    seconds: dict[str, float] = field(default_factory=dict)  # by step
    cpu: dict[str, float] = field(default_factory=dict)  # by step, in seconds
    written: dict[str, int] = field(default_factory=dict)  # bytes by kind of file
    text_in: dict[str, int] = field(default_factory=dict)  # bytes by step (run/worker/traces.py)
    payload_in: dict[str, int] = field(default_factory=dict)  # bytes by step
    text_out: dict[str, int] = field(default_factory=dict)  # bytes by step
    worked: dict[str, int] = field(default_factory=dict)  # bytes by step
    left_out: dict[str, int] = field(default_factory=dict)  # by column: values set to null
    misfits: dict[str, int] = field(default_factory=dict)  # by column: values moved to `extra`
    digests_differing: dict[str, int] = field(default_factory=dict)  # by input file
    compiled: float = 0.0  # seconds of compilation


@dataclass(frozen=True)
class StageResult(Counts, Message):
    """The counts of a partition that went through a stage, and seals (size, digest) of its
    files."""

    corrupt_examples: list[Place] = field(default_factory=list)
    cut_examples: dict[str, list[CutExample]] = field(default_factory=dict)
    files: dict[str, Seal] = field(default_factory=dict)
    sketch_files: dict[str, Seal] = field(default_factory=dict)
    documents: list[int] = field(default_factory=list)  # per part of an input file (first stage)
    peak_bytes: int = 0


@dataclass(frozen=True)
class Sketched(Message):
    files: dict[str, Seal]


@dataclass(frozen=True)
class ResolveTask(Task):
    """A task to let a step, such as deduplication, decide on all documents. It is only for runs
    with a single partition, whose worker has already loaded the kernels (compiled code)."""

    spec: Path  # the stage's specification
    own: Path  # the step's folder
    decisions: Path  # file to write
    size: tuple[int, int]  # number of documents, bytes of their text
    sizes: Sizes
    ids_changed: bool


@dataclass(frozen=True)
class Resolved(Message):
    """A summary of what a step, such as deduplication, decided on all documents."""

    figures: dict[str, Any]  # for run.json, with seconds and how much is removed
    seal: Seal  # size and digest of the file of decisions


@dataclass(frozen=True)
class AssembleTask(Task):
    """A task to write one partition to corpus/ and rejected/. Files that the task reads are listed
    with size and digest."""

    folders: tuple[Path, ...]  # the stages' folders, in order
    ids: Path  # file with the final ids
    corpus: Path
    rejected: Path
    schema: str  # of rejected/, in hexadecimal
    kept_bytes: int  # size of the kept texts
    own: tuple[str, ...]  # input columns with a dot in their names
    sealed: list[SealedPath]  # files read by this task
    shared: list[SealedPath]  # files read by all tasks


FileRecord = dict[str, int | str]  # an entry of a manifest, with the file's `name`


@dataclass(frozen=True)
class Assembled(Message):
    """A partition's files in corpus/ and rejected/."""

    kept: FileRecord
    rejected: FileRecord
    kept_changed: int  # modification time in nanoseconds
    rejected_changed: int  # modification time in nanoseconds
    cpu: float  # CPU seconds


@dataclass(frozen=True)
class Committed(Message):
    """The ledger's record of finished work: a folder, and the size and digest of each file."""

    folder: str
    files: dict[str, Seal] = field(default_factory=dict)


@dataclass(frozen=True)
class Once(Committed):
    """The ledger's record of work that is not divided by partition: its result and CPU seconds."""

    value: Any = None
    cpu: float = 0.0


@dataclass(frozen=True)
class CorpusRecord(Message):
    """The ledger's record of a finished corpus/ and rejected/."""

    key: str  # the plan's `corpus_key`
    files: dict[str, Seal]  # size and digest of the files beside the two folders
    at: int  # latest modification time in nanoseconds


@dataclass(frozen=True)
class Built(Message):
    """The ledger's record of a finished product, such as a tokenizer or a trained model."""

    record: dict[str, Any]  # entry in run.json
    seals: dict[str, Seal]  # size and digest of each file
    at: int  # latest modification time in nanoseconds


@dataclass(frozen=True)
class Published(Message):
    """The ledger's record of the product in OUT, one per kind (tokenizer, shards, ...)."""

    key: str | None  # the product's key; None while files are being replaced
    files: list[str]


@dataclass(frozen=True)
class Made(Message):
    """The ledger's record of how the product in OUT was made, one per kind (tokenizer, shards,
    ...)."""

    key: str
    lineage: str | None  # hash; a product with an equal hash may continue it
    stage: str  # folder in which it was built
    settings: dict[str, str]  # as JSON


@dataclass(frozen=True)
class RehearseStage(Message):
    spec: Path
    backwards: bool


@dataclass(frozen=True)
class RehearseStep(Message):
    """A step to run on a few documents, so that its kernels (functions compiled by numba) are
    compiled."""

    step: StepRecord | None  # None: the run's products
    wait: bool  # True to wait for kernels that another process compiles


@dataclass(frozen=True)
class Rehearsed(Message):
    """The outcome of running a step on a few documents."""

    busy: bool = False  # True if another process compiles a needed kernel
    missing: str | None = None  # why the step cannot be run
