"""The messages between the driver of a run and its workers, and the rows of the ledger."""

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

# The numbers of documents that a worker works on before the first one, and while it reads.
LOADING, READING = (-2, -2), (-1, -1)


@dataclass(frozen=True)
class StepRecord(Message):
    """A step by name, the label that it has in the recipe, and settings. source: the digest of a
    plug-in's own source."""

    step: str
    label: str
    settings: dict[str, Any]
    source: str | None = None

    @classmethod
    def of(cls, step: Settings) -> StepRecord:
        """Return the record of a step, with what the environment decides (`Settings.identity`)."""
        identity = step.identity()
        values = (identity.step, identity.label, identity.settings)
        return cls(*values, identity.contents.get("source"))

    @classmethod
    def for_rehearsal(cls, step: Settings) -> StepRecord:
        """Return the record of a step of ours, whose files are not looked at."""
        return cls(step.name, step.label, step.model_dump(mode="json"))


@dataclass(frozen=True)
class Specification(Message):
    """A stage, as the file stage.json has it for workers.

    input: the folder of the stage before, or plan: what is read; ids: the settled ids of the first
    stage; apply: the step whose decisions the stage begins with; sketch: the one whose sketches it
    writes, into files of that kind; later: steps of stages behind it, for rehearsals; of: how many
    steps the run has; columns: of the corpus, of the last stage; own: of the input, with a point.
    """

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
        """Return the specification in a stage's folder.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged.
        """
        for path in sorted(folder.glob("stage*.json")):
            return cls.from_json(path.read_bytes())
        raise FileNotFoundError(folder / "stage.json")

    def inputs(self, folder: Path) -> InputPlan:
        """Return the plan of the input, of the first stage, which lies in a folder."""
        assert self.plan is not None
        return InputPlan.map(folder, self.plan)


@dataclass(frozen=True)
class StageTask(Task):
    """A partition of a stage. spec: the file of its specification; sealed: files that this task
    alone reads; shared: files that all tasks read.

    careful: the first and the last of the documents to run one at a time, after a worker died on
    them; quarantine: why documents, by their numbers, killed their worker twice.
    """

    spec: Path
    sealed: list[SealedPath] = field(default_factory=list)
    shared: list[SealedPath] = field(default_factory=list)
    careful: tuple[int, int] | None = None
    quarantine: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CutExample(Message):
    """A cut of a text, with the text before and after it and the replacement. cut: its first bytes;
    bytes: its size; key: the hash of the text."""

    key: int
    before: str
    cut: str
    bytes: int
    after: str
    put: str


Place = dict[str, int | str | None]  # file, offset, what and count: what could not be read


@dataclass(frozen=True)
class Counts:
    """Counts of what goes through a stage: documents, bytes, records of other types, places that
    cannot be read, reasons and cuts by rule, seconds by step; compiled: seconds of compilation."""

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
    """A partition that went through a stage: its counts, and the seals of its files. documents: of
    each slice, of the first stage."""

    corrupt_examples: list[Place] = field(default_factory=list)
    cut_examples: dict[str, list[CutExample]] = field(default_factory=dict)
    files: dict[str, Seal] = field(default_factory=dict)
    sketch_files: dict[str, Seal] = field(default_factory=dict)
    documents: list[int] = field(default_factory=list)
    peak_bytes: int = 0


@dataclass(frozen=True)
class Sketched(Message):
    """A partition's sketches: the seals of their files by kind."""

    files: dict[str, Seal]


@dataclass(frozen=True)
class ResolveTask(Task):
    """The decisions over the sketches of a corpus of one partition. spec: the stage's; own: the
    step's folder; decisions: the file to write; size: documents and bytes of text."""

    spec: Path
    own: Path
    decisions: Path
    size: tuple[int, int]
    sizes: Sizes
    ids_changed: bool


@dataclass(frozen=True)
class Resolved(Message):
    """Decisions that were written: their seal, and what the step says of them (`Decided.record`),
    with their seconds and, for `guard`, the removal."""

    figures: dict[str, Any]
    seal: Seal


@dataclass(frozen=True)
class AssembleTask(Task):
    """A partition's part of corpus/ and rejected/. folders: the stages', in order; ids: the settled
    ids; schema: that of rejected/, in hexadecimal; kept_bytes: text of the documents that the last
    stage kept; own: as of `Specification`; sealed, shared: as of `StageTask`."""

    folders: tuple[Path, ...]
    ids: Path
    corpus: Path
    rejected: Path
    schema: str
    kept_bytes: int
    own: tuple[str, ...]
    sealed: list[SealedPath]
    shared: list[SealedPath]


FileRecord = dict[str, int | str]  # what a manifest says of a file, with its `name`


@dataclass(frozen=True)
class Assembled(Message):
    """The files of a partition in corpus/ and rejected/, and when they changed, in nanoseconds."""

    kept: FileRecord
    rejected: FileRecord
    kept_changed: int
    rejected_changed: int
    cpu: float


@dataclass(frozen=True)
class Committed(Message):
    """Work that the ledger has as done: the folder that it lies in, and the seals of its files."""

    folder: str
    files: dict[str, Seal] = field(default_factory=dict)


@dataclass(frozen=True)
class Once(Committed):
    """Work that is done once for all partitions: what it returned, and the CPU seconds."""

    value: Any = None
    cpu: float = 0.0


@dataclass(frozen=True)
class CorpusRecord(Message):
    """corpus/ and rejected/ as they were written for a stage's key: the seals of the files beside
    them, and when the last of these changed, in nanoseconds."""

    key: str
    files: dict[str, Seal]
    at: int


@dataclass(frozen=True)
class Built(Message):
    """A product: its record in run.json, and as of `CorpusRecord` the seals of its files."""

    record: dict[str, Any]
    seals: dict[str, Seal]
    at: int


@dataclass(frozen=True)
class Published(Message):
    """The files of a kind of product in OUT, and the key of the product; None while they are
    replaced."""

    key: str | None
    files: list[str]


@dataclass(frozen=True)
class Made(Message):
    """The settings that made a kind of product in OUT, as JSON, with a hash of those that another
    one must share to go on from it."""

    key: str
    lineage: str | None
    stage: str
    settings: dict[str, str]


@dataclass(frozen=True)
class RehearseStage(Message):
    """A stage whose steps are to be rehearsed. backwards: from the last one on."""

    spec: Path
    backwards: bool


@dataclass(frozen=True)
class RehearseStep(Message):
    """A step, or the products (None), to be rehearsed alone. wait: whether to wait for kernels
    that another process compiles."""

    step: StepRecord | None
    wait: bool


@dataclass(frozen=True)
class Rehearsed(Message):
    """busy: whether another process compiles what the step needs; missing: why it could not be
    rehearsed."""

    busy: bool = False
    missing: str | None = None
