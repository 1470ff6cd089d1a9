"""The contract of engines, the messages between them and workers, and what they have in common.

An engine maps a function, named "module:function", over tasks in processes that load what they
need once and keep it. Tasks and results are messages (llmcurate/base/messages.py), or other values
that JSON holds. It knows nothing of documents, stages or files.
"""

from __future__ import annotations

import re
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

from llmcurate.base.errors import Damaged, LlmcurateError, RunFailed, Unforeseen, UsageError
from llmcurate.base.kernels import compile_time
from llmcurate.base.messages import Message, decode


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


T = TypeVar("T")
R = TypeVar("R")
Self = TypeVar("Self", bound="TaskLoop")


@dataclass(frozen=True)
class Jobs:
    """The way a cluster is asked for workers. options: of sbatch, as KEY=VALUE; folder: OUT, which
    all machines must see; quiet: whether nobody is told how many have started."""

    options: Sequence[str]
    folder: Path
    quiet: bool = False


OnDeath = Callable[[T, Death], T]
# Signals from outside, most often because memory ran out. They never count against a document: no
# result depends on memory pressure.
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


class Engine(Protocol):
    """Where work runs. Use as a context manager; workers start with the first task. cpu: seconds
    that tasks have taken in workers so far."""

    cpu: float

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """(task, result) in the order of arrival. result: the type of what the function returns.
        When a worker dies, `on_death` says what to run instead, or raises; RunFailed ends
        everything."""
        ...


class TaskLoop(ABC):
    """What the engines have in common: tasks go to workers, answers come back. A subclass starts
    workers and carries both. Use as a context manager.

    count: of workers; tick: called twice a second.
    """

    def __init__(self, count: int, tick: Callable[[], None]) -> None:
        self._count, self._tick = count, tick
        self.cpu = 0.0  # seconds that tasks have taken in workers

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _working(self) -> int:
        """How many workers have a task."""

    @abstractmethod
    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        """Gives tasks to idle workers, starting those that are missing."""

    @abstractmethod
    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        """(task, answer) of what has come, within half a second; None where the worker is lost,
        which is for no task to blame."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """As Engine.map."""
        waiting: deque[T] = deque()
        source = iter(tasks)
        try:
            while refill(waiting, source, self._count) or self._working():
                self._send_tasks(function, waiting, source)
                for task, answer in self._answers():
                    if answer is None:
                        waiting.appendleft(task)
                    elif isinstance(answer, Death):
                        if on_death is None:
                            raise RunFailed(f"a worker died ({answer.describe()})")
                        waiting.appendleft(on_death(task, answer))
                    elif isinstance(answer, Failed):
                        raise answer.error()
                    else:
                        self.cpu += answer.cpu
                        yield task, decode(result, answer.result)
                self._tick()
        except BaseException:
            self.close()
            raise


class Map(Protocol):
    """`Engine.map` with the answer to a death."""

    def __call__(
        self, function: str, tasks: Iterable[T], result: type[R]
    ) -> Iterator[tuple[T, R]]: ...


def mapping(engine: Engine, work: str) -> Map:
    """Return `engine.map` for work that touches no document alone: each task is tried twice."""
    return cast(Map, partial(engine.map, on_death=retry_once(work)))


def killed_twice(where: str, death: Death) -> RunFailed:
    """Return the error of work that a signal from outside has ended twice."""
    return RunFailed(
        f"{where}: a worker was killed twice ({death.describe()}), as when memory runs out: use"
        " fewer --workers or a smaller read.batch_bytes and run again, it resumes"
    )


def retry_once(work: str) -> OnDeath[Any]:
    """For work that touches no document alone: each partition is tried twice."""
    seen: Counter[int] = Counter()

    def decide(task: Any, death: Death) -> Any:
        part = task.part
        seen[part] += 1
        if seen[part] > 1:
            if death.status in FROM_OUTSIDE:
                raise killed_twice(f"partition {part} of {work}", death)
            raise RunFailed(f"partition {part} of {work}: a worker died twice ({death.describe()})")
        return task

    return decide


def refill(waiting: deque[T], tasks: Iterator[T], count: int) -> bool:
    """Makes `waiting` hold that many tasks, if so many are left; whether it holds any. Tasks are
    made when workers are about to take them: what that costs, and holds, is for these alone."""
    waiting.extend(islice(tasks, max(0, count - len(waiting))))
    return bool(waiting)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far without compilation, which a machine does once:
    a forecast rests on work that grows with the input."""
    return time.process_time() - compile_time.seconds


def check_engine(name: str, address: str | None, slurm: Sequence[str] = ()) -> None:
    """UsageError where there is no such engine, or it does not take these options."""
    if name not in ("local", "ray", "slurm"):
        raise UsageError(f"--engine {name}: there are local, ray and slurm")
    if address and name == "local":
        raise UsageError("--address is of a cluster: give --engine ray or slurm as well")
    if slurm and name != "slurm":
        raise UsageError("--slurm has options of sbatch: give --engine slurm as well")
    sbatch_options(slurm)


DEFAULTS: dict[str, str | bool] = {"job_name": "llmcurate", "time": "60"}


# Options of sbatch that the engine or submitit sets.
TAKEN = set(
    "array error input no_requeue nodes ntasks ntasks_per_node open_mode output requeue signal"
    " wait wrap".split()
)


def sbatch_options(texts: Sequence[str]) -> tuple[bool, dict[str, str | bool]]:
    """Whether jobs run on this machine (`cluster=local`), and the options of sbatch by name, with _
    for -. texts: KEY=VALUE, or KEY of a switch; UsageError names a wrong one."""
    local, options = False, dict(DEFAULTS)
    for text in texts:
        key, equals, value = text.partition("=")
        name = key.removeprefix("--").replace("-", "_")
        if (
            not re.fullmatch(r"[a-z][a-z0-9_]+", name)
            or not value.isprintable()
            or text.endswith("=")
        ):
            raise UsageError(f"--slurm {text!r}: give KEY=VALUE, as partition=cpu or time=120")
        if name == "cluster":
            if value != "local":
                raise UsageError(f"--slurm {text}: cluster=local is all there is (see clusters)")
            local = True
        elif name in TAKEN:
            raise UsageError(f"--slurm {text}: {key} is set by llmcurate; jobs are --workers")
        else:
            options[name] = value if equals else True
    return local, options
