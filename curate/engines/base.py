"""The common code of all engines: their interface, their messages with workers, and their loop. An
engine maps a function, named "module:function", over tasks in worker processes, which load
libraries and models once. Tasks and results are messages (llmcurate/base/messages.py) or other JSON
values. Engines know nothing of documents, stages or files."""

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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from llmcurate.base.disk.store import LOCAL, Mirror, Store
from llmcurate.base.errors import Damaged, LlmcurateError, RunFailed, UnexpectedError, UsageError
from llmcurate.base.kernels import compile_time
from llmcurate.base.messages import Message, decode

if TYPE_CHECKING:
    from curate.corpus.sketches import Run


@dataclass(frozen=True)
class Call(Message):
    """A message to a worker: call the function named "module:function" with this task, as JSON. If
    OUT is a URL, `store` has this URL and the folder in which the worker has the files of OUT."""

    function: str
    task: str
    store: Mirror | None = None


@dataclass(frozen=True)
class Beat(Message):
    """A message from a worker about the documents that it processes now. They are blamed if the
    worker dies."""

    first: int  # number of the first document
    last: int  # number of the last document
    seconds: float  # the worker is ended after this time without another message (0: never)
    cpu: float | None  # CPU seconds used so far; if given, only CPU seconds count for `seconds`


@dataclass(frozen=True)
class Compiling(Message):
    """A message from a worker that begins to compile a kernel. Meanwhile another process can run
    the call `help`, to compile other kernels."""

    help: Call | None


@dataclass(frozen=True)
class Waiting(Message):
    """A message from a worker that waits for a kernel that another process compiles."""


@dataclass(frozen=True)
class Ready(Message):
    """A message that the kernels of a step are compiled. `of` is the number of steps in the run."""

    step: str
    of: int


@dataclass(frozen=True)
class Done(Message):
    """A message with a task's result, as JSON, and the CPU seconds that the task took."""

    result: str
    cpu: float


@dataclass(frozen=True)
class Death(Message):
    """The end of a worker."""

    status: int  # exit status as in subprocess (negative: a signal)
    documents: tuple[int, int] | None  # numbers of its first and last current document
    seconds: float = 0.0  # the worker's time limit, if exceeding it was the cause

    def describe(self) -> str:
        """Return the cause of the end, such as `signal SIGSEGV` or `took longer than 600 s`."""
        if self.seconds:
            return f"took longer than {self.seconds:,g} s"
        if self.status < 0:
            return f"signal {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class WorkerBug(UnexpectedError):
    """An unexpected exception in a worker. It has the worker's traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True)
class Failed(Message):
    """A message from a worker: a task raised an error. Errors of the kinds "damaged" and "known"
    have a message for the user."""

    kind: Literal["memory", "damaged", "known", "bug"]
    message: str = ""
    code: int = 1
    traceback: str = ""

    @classmethod
    def of(cls, error: LlmcurateError) -> Failed:
        if isinstance(error, UnexpectedError):
            return cls("bug", str(error), error.exit_code, error.trace)
        kind: Literal["damaged", "known"] = "damaged" if isinstance(error, Damaged) else "known"
        return cls(kind, str(error), error.exit_code, error.trace)

    def error(self) -> LlmcurateError:
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
WorkerMessage = Answer | Beat | Compiling | Waiting | Ready
_KINDS = {k.__name__: k for k in (Done, Death, Failed, Beat, Compiling, Waiting, Ready)}


def line_of(message: WorkerMessage) -> bytes:
    return b"%s %s\n" % (type(message).__name__.encode(), message.to_json())


def read_line(line: bytes) -> WorkerMessage:
    name, _, text = line.partition(b" ")
    message: WorkerMessage = _KINDS[name.decode()].from_json(text)  # type: ignore[assignment]
    return message


@dataclass(frozen=True)
class Verbatim(Message):
    """A task or a result as JSON text that is passed on without being parsed."""

    text: str

    def to_json(self) -> bytes:
        return self.text.encode()

    @classmethod
    def from_json(cls, line: bytes | str) -> Verbatim:
        return cls(line if isinstance(line, str) else line.decode())


@dataclass(frozen=True)
class Hello(Message):
    """The first message of a cluster's worker."""

    version: str  # of llmcurate
    node: str  # the name of its machine
    missing: tuple[str, ...]  # files of the driver that it cannot see
    id: str = ""  # of the machine (Ray) or the job (Slurm)


@dataclass(frozen=True)
class Reply(Message):
    """An answer from a Slurm job, as a line of text. If `last`, the job takes no other task."""

    line: str
    last: bool

    def answer(self) -> Answer:
        answer = read_line(self.line.encode())
        assert isinstance(answer, (Done, Death, Failed))
        return answer


T = TypeVar("T")
R = TypeVar("R")
Self = TypeVar("Self", bound="Engine")


@dataclass(frozen=True)
class Jobs:
    """The options for asking a cluster for workers. `folder` is OUT, or a local copy (mirror) of
    OUT if OUT is a URL. Every machine must see this folder; with Ray, a mirror need not be seen."""

    options: Sequence[str]  # sbatch options, as KEY=VALUE
    folder: Path
    quiet: bool = False  # True: no messages on workers
    store: Store = LOCAL


OnDeath = Callable[[T, Death], T]
# Signals from outside, mostly because memory ran out. They never count against a document, because
# results must not depend on memory pressure.
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


class Engine(ABC):
    """A context manager that runs tasks in workers, which start with the first task. A subclass
    starts `count` workers and passes tasks and answers to and from them. `tick` is called twice a
    second."""

    here: ClassVar[bool] = False  # True if workers are on this machine

    def __init__(self, count: int, tick: Callable[[], None]) -> None:
        self._count, self._tick = count, tick
        self._store = LOCAL  # with another store, results name files of OUT
        self.cpu = 0.0  # seconds that tasks have taken in workers

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _working(self) -> int:
        """Return the number of workers that have a task."""

    @abstractmethod
    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        """Give tasks to idle workers, and start workers until all workers have been started."""

    @abstractmethod
    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        """Wait up to half a second for answers. Yield (task, answer), or (task, None) if the worker
        is lost for a reason other than its task."""

    @abstractmethod
    def close(self) -> None:
        """End all workers."""

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """Yield (task, result) in the order in which results arrive. `result` is the type that the
        function returns. When a worker dies, `on_death` returns the task to run instead, or raises
        an error, which ends the map."""
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
                        yield task, decode(result, self._store.places(answer.result))
                self._tick()
        except BaseException:
            self.close()
            raise


def mapping(engine: Engine, work: str) -> Run:
    """Return `engine.map` with a second try for each task whose worker dies, for tasks in which no
    single document causes the death. `work` names the work in error messages."""
    return cast("Run", partial(engine.map, on_death=retry_once(work)))


def killed_twice(where: str, death: Death) -> RunFailed:
    return RunFailed(
        f"{where}: a worker was killed twice ({death.describe()}), as when memory runs out: use"
        " fewer --workers or a smaller read.batch_bytes and run again, it resumes"
    )


def retry_once(work: str) -> OnDeath[Any]:
    """Return an `on_death` that lets each partition be tried once more, and raises RunFailed at the
    second death. `work` names the work in error messages."""
    deaths: Counter[int] = Counter()

    def decide(task: Any, death: Death) -> Any:
        part = task.part
        deaths[part] += 1
        if deaths[part] > 1:
            if death.status in FROM_OUTSIDE:
                raise killed_twice(f"partition {part} of {work}", death)
            raise RunFailed(f"partition {part} of {work}: a worker died twice ({death.describe()})")
        return task

    return decide


def refill(waiting: deque[T], tasks: Iterator[T], count: int) -> bool:
    """Add tasks to `waiting` until it holds `count` tasks or no task is left. Return True if it
    holds any. To save time and memory, tasks are made only when workers are about to take them."""
    waiting.extend(islice(tasks, max(0, count - len(waiting))))
    return bool(waiting)


def cpu_seconds() -> float:
    """Return this process's CPU seconds without those for compilation. A machine compiles only
    once, and forecasts need the seconds that grow with the input."""
    return time.process_time() - compile_time.seconds


def check_engine(name: str, address: str | None, slurm: Sequence[str] = ()) -> None:
    """Raise UsageError if no engine has this name, or if the engine does not take these options."""
    if name not in ("local", "ray", "slurm"):
        raise UsageError(f"--engine {name}: choose local, ray or slurm")
    if address and name == "local":
        raise UsageError("--address needs a cluster: give --engine ray or slurm as well")
    if slurm and name != "slurm":
        raise UsageError("--slurm needs --engine slurm: give it as well")
    sbatch_options(slurm)


DEFAULTS: dict[str, str | bool] = {"job_name": "llmcurate", "time": "60"}


# Options of sbatch that the engine or submitit sets itself.
RESERVED_OPTIONS = set(
    "array error input no_requeue nodes ntasks ntasks_per_node open_mode output requeue signal"
    " wait wrap".split()
)


def sbatch_options(texts: Sequence[str]) -> tuple[bool, dict[str, str | bool]]:
    """Parse options of the form KEY=VALUE, or KEY for a switch. Return (local, options): True if
    jobs run on this machine (`cluster=local`), and sbatch options by name, with _ instead of -.
    Raises UsageError for other texts."""
    local, options = False, dict(DEFAULTS)
    for text in texts:
        key, equals, value = text.partition("=")
        name = key.removeprefix("--").replace("-", "_")
        if (
            not re.fullmatch(r"[a-z][a-z0-9_]+", name)
            or not value.isprintable()
            or text.endswith("=")
        ):
            raise UsageError(f"--slurm {text!r}: give KEY=VALUE, such as partition=cpu or time=120")
        if name == "cluster":
            if value != "local":
                raise UsageError(f"--slurm {text}: cluster must be local, or left out")
            local = True
        elif name in RESERVED_OPTIONS:
            raise UsageError(
                f"--slurm {text}: {key} is set by llmcurate; --workers sets the number of jobs"
            )
        else:
            options[name] = value if equals else True
    return local, options
