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
    """A step: its name, its label in the recipe, and its settings. `source` is the digest of a
    plug-in's source."""

    step: str
    label: str
    settings: dict[str, Any]
    source: str | None = None

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
    """A stage as its workers read it from the file stage.json. The first stage reads the input of
    `plan`; a later stage reads the folder `input` of the stage before it. The second stage also
    reads the final ids from the file `ids`. A stage first applies the decisions of the step
    `apply`, in the file `decisions`. The paths are relative to the parent of the stage's folder,
    which differs between machines. At the end the stage writes sketches (hashes of documents) for
    the step `sketch` to files of the kind `sketch_kind`. `later` holds the steps of later stages,
    whose kernels (compiled functions) can be compiled meanwhile (rehearsal.py), and `of` is the
    number of steps in the run. `columns` are the columns of the corpus (last stage only), and `own`
    are those columns of the input that have a dot in their names."""

    read: ReadSettings
    steps: tuple[StepRecord, ...]
    input: Path | None = None
    plan: PlanRest | None = None
    ids: Path | None = None
    apply: StepRecord | None = None
    decisions: Path | None = None
    sketch: StepRecord | None = None
    sketch_kind: str = ""
    later: tuple[StepRecord, ...] = ()
    of: int = 0
    columns: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

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
    """A partition to run through the stage of the specification file `spec`. `sealed` and `shared`
    are files that the task reads, with size and digest: `sealed` are read by this task only,
    `shared` by all tasks. `careful` holds the first and last number of the documents to run one at
    a time, because a worker died on one of them. `quarantine` maps numbers of documents to the
    reason why they killed their worker twice."""

    spec: Path
    sealed: list[SealedPath] = field(default_factory=list)
    shared: list[SealedPath] = field(default_factory=list)
    careful: tuple[int, int] | None = None
    quarantine: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CutExample(Message):
    """A passage that a step cut from a document, with the text before and after. `cut` is the
    beginning of the passage, `bytes` the number of all its bytes, and `put` the text that replaced
    the passage. `key` is the hash of the document's text."""

    key: int
    before: str
    cut: str
    bytes: int
    after: str
    put: str


Place = dict[str, int | str | None]  # an unreadable place: file, offset, what and count


@dataclass(frozen=True)
class Counts:
    """Counts of a stage: documents, bytes, skipped records and unreadable places; how often each
    rule dropped documents or cut texts; seconds by step. `compiled` is the seconds of
    compilation."""

    read: int = 0
    kept: int = 0
    rejected: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    corrupt: int = 0
    passed_over: int = 0
    bad_dates: int = 0
    digests_compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    primary: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    cut_bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    text_in: dict[str, int] = field(default_factory=dict)
    payload_in: dict[str, int] = field(default_factory=dict)
    text_out: dict[str, int] = field(default_factory=dict)
    worked: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    misfits: dict[str, int] = field(default_factory=dict)
    digests_differing: dict[str, int] = field(default_factory=dict)
    compiled: float = 0.0


@dataclass(frozen=True)
class StageResult(Counts, Message):
    """The counts of a partition that went through a stage, and seals (size, digest) of the files it
    wrote. `documents` is the number of documents per slice of the input (first stage only)."""

    corrupt_examples: list[Place] = field(default_factory=list)
    cut_examples: dict[str, list[CutExample]] = field(default_factory=dict)
    files: dict[str, Seal] = field(default_factory=dict)
    sketch_files: dict[str, Seal] = field(default_factory=dict)
    documents: list[int] = field(default_factory=list)
    peak_bytes: int = 0


@dataclass(frozen=True)
class Sketched(Message):
    files: dict[str, Seal]


@dataclass(frozen=True)
class ResolveTask(Task):
    """A task that makes the decisions of a step over a corpus of one partition. `spec` is the
    stage's specification, `own` the step's folder, and `decisions` the file to write. `size` is the
    number of documents and their bytes of text."""

    spec: Path
    own: Path
    decisions: Path
    size: tuple[int, int]
    sizes: Sizes
    ids_changed: bool


@dataclass(frozen=True)
class Resolved(Message):
    """The seal (size, digest) of a file of decisions, and the figures of the step
    (`Decided.record`). The figures include the seconds that the decisions took, and how much the
    step removes, which `guard` checks."""

    figures: dict[str, Any]
    seal: Seal


@dataclass(frozen=True)
class AssembleTask(Task):
    """The task to write one partition to corpus/ and rejected/. `folders` are the folders of the
    stages, in order, and `ids` is the file with the final ids. `schema` is the schema of rejected/,
    in hexadecimal. `kept_bytes` is the size of the kept documents' text. `own` is as in
    `Specification`; `sealed` and `shared` are as in `StageTask`."""

    folders: tuple[Path, ...]
    ids: Path
    corpus: Path
    rejected: Path
    schema: str
    kept_bytes: int
    own: tuple[str, ...]
    sealed: list[SealedPath]
    shared: list[SealedPath]


FileRecord = dict[str, int | str]  # an entry of a manifest, with the file's `name`


@dataclass(frozen=True)
class Assembled(Message):
    """The files of a partition in corpus/ and rejected/, with their modification times in
    nanoseconds."""

    kept: FileRecord
    rejected: FileRecord
    kept_changed: int
    rejected_changed: int
    cpu: float


@dataclass(frozen=True)
class Committed(Message):
    """What the ledger records of finished work: its folder and seals (size, digest) of files."""

    folder: str
    files: dict[str, Seal] = field(default_factory=dict)


@dataclass(frozen=True)
class Once(Committed):
    """What the ledger records of work that is not divided by partition: result and CPU seconds."""

    value: Any = None
    cpu: float = 0.0


@dataclass(frozen=True)
class CorpusRecord(Message):
    """What the ledger records when corpus/ and rejected/ are finished. `key` is the plan's
    attribute `corpus_key`. `files` holds the seals (sizes and digests) of the files beside the two
    folders. `at` is the latest modification time of the files, in nanoseconds."""

    key: str
    files: dict[str, Seal]
    at: int


@dataclass(frozen=True)
class Built(Message):
    """What the ledger records of a finished product: its entry in run.json, the seals (sizes and
    digests) of its files, and their latest modification time in nanoseconds."""

    record: dict[str, Any]
    seals: dict[str, Seal]
    at: int


@dataclass(frozen=True)
class Published(Message):
    """What the ledger records of the product of one kind whose files are in OUT. `key` is its key,
    None while the files are being replaced."""

    key: str | None
    files: list[str]


@dataclass(frozen=True)
class Made(Message):
    """The settings, as JSON, with which the product of one kind in OUT was made. `lineage` is a
    hash of some of the settings; only a product with the same hash may continue from this one."""

    key: str
    lineage: str | None
    stage: str
    settings: dict[str, str]


@dataclass(frozen=True)
class RehearseStage(Message):
    spec: Path
    backwards: bool


@dataclass(frozen=True)
class RehearseStep(Message):
    """A step to run on a few documents, so that its kernels are compiled; None stands for the
    products of the run. `wait` is True to wait for kernels that another process compiles."""

    step: StepRecord | None
    wait: bool


@dataclass(frozen=True)
class Rehearsed(Message):
    """The outcome of a rehearsal (see RehearseStep). `busy` is true if another process compiles a
    needed kernel. `missing` says why the step cannot be rehearsed."""

    busy: bool = False
    missing: str | None = None
