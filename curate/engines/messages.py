"""The messages between engines and workers: lines, each the name of a message and its JSON."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from llmcurate.base.errors import Damaged, LlmcurateError, RunFailed, Unforeseen
from llmcurate.base.messages import Message


@dataclass(frozen=True)
class Call(Message):
    """A task, as JSON, for a function, named "module:function"."""

    function: str
    task: str


@dataclass(frozen=True)
class Beat(Message):
    """The documents that are being worked on; what a death is blamed on. seconds: after which,
    without another word, the engine ends the process (0: never); cpu: the CPU seconds that it has
    taken, if those count that it takes from now on, so that it may wait as long as it must."""

    first: int
    last: int
    seconds: float
    cpu: float | None


@dataclass(frozen=True)
class Compiling(Message):
    """The process begins to compile a kernel. help: what another process can do meanwhile, a call
    whose result nobody waits for."""

    help: Call | None


@dataclass(frozen=True)
class Waiting(Message):
    """The process waits for a kernel that another one compiles."""


@dataclass(frozen=True)
class Ready(Message):
    """The kernels of a step are compiled. of: the number of the run's steps."""

    step: str
    of: int


@dataclass(frozen=True)
class Done(Message):
    """A task's result, as JSON, and the CPU seconds that it took."""

    result: str
    cpu: float


@dataclass(frozen=True)
class Death(Message):
    """The end of a worker: status as subprocess gives it (negative: a signal), and what it did.
    seconds: that it was given for that, if the engine ended it because they were over."""

    status: int
    documents: tuple[int, int] | None
    seconds: float = 0.0

    def describe(self) -> str:
        """For people: `signal SIGSEGV`, `exit status 3` or `took longer than 600 s`."""
        if self.seconds:
            return f"took longer than {self.seconds:,g} s"
        if self.status < 0:
            return f"signal {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class WorkerBug(Unforeseen):
    """An exception in a worker that no rule foresaw; carries the worker's traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True)
class Failed(Message):
    """An error in a task. kind: memory; an error that tells the user enough (damaged if a file is,
    known otherwise); or a bug."""

    kind: Literal["memory", "damaged", "known", "bug"]
    message: str = ""
    code: int = 1
    traceback: str = ""

    @classmethod
    def of(cls, error: LlmcurateError) -> Failed:
        """Return the message about an error that tells the user enough."""
        if isinstance(error, Unforeseen):
            return cls("bug", str(error), error.exit_code, error.trace)
        kind: Literal["damaged", "known"] = "damaged" if isinstance(error, Damaged) else "known"
        return cls(kind, str(error), error.exit_code, error.trace)

    def error(self) -> LlmcurateError:
        """Return what it is for the user."""
        if self.kind == "memory":
            return RunFailed(
                "a worker ran out of memory: use fewer --workers or a smaller read.batch_bytes and"
                " run again, it resumes"
            )
        if self.kind == "damaged":
            return Damaged(self.message)
        if self.kind == "bug":
            return WorkerBug(self.message, self.traceback)
        failed = RunFailed(self.message)
        failed.exit_code, failed.trace = self.code, self.traceback
        return failed


Answer = Done | Death | Failed
Said = Answer | Beat | Compiling | Waiting | Ready
_KINDS = {k.__name__: k for k in (Done, Death, Failed, Beat, Compiling, Waiting, Ready)}


def line_of(message: Said) -> bytes:
    """Return the line of a message, with its end."""
    return b"%s %s\n" % (type(message).__name__.encode(), message.to_json())


def read_line(line: bytes) -> Said:
    """Return the message of a line."""
    name, _, text = line.partition(b" ")
    message: Said = _KINDS[name.decode()].from_json(text)  # type: ignore[assignment]
    return message


@dataclass(frozen=True)
class Verbatim(Message):
    """A task or a result that is handed on as it came."""

    text: str

    def to_json(self) -> bytes:
        return self.text.encode()

    @classmethod
    def from_json(cls, line: bytes | str) -> Verbatim:
        return cls(line if isinstance(line, str) else line.decode())


@dataclass(frozen=True)
class Hello(Message):
    """A worker of a cluster: the version that it has, its machine's name, and the driver's files
    that cannot be seen from there. id: the machine's (Ray) or the job's (Slurm)."""

    version: str
    node: str
    missing: tuple[str, ...]
    id: str = ""


@dataclass(frozen=True)
class Reply(Message):
    """The line of an answer from a job of Slurm. last: the job takes no other task."""

    line: str
    last: bool

    def answer(self) -> Answer:
        """Return the answer of that line."""
        answer = read_line(self.line.encode())
        assert isinstance(answer, (Done, Death, Failed))
        return answer
