"""The Slurm engine: runs the same tasks and functions as the local one in the jobs of an array.
submitit writes the script, gives it to sbatch and starts a `Job` on the nodes. Each job then
connects to this process, which sends it tasks (JSON, a few hundred bytes). Documents go through
files in a folder that all nodes see. A job that ends, because its time is over or it was preempted,
is replaced by a new one as long as there is work."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from curate.engines.base import Answer, Call, Hello, Jobs, Reply, line_of, sbatch_options
from curate.engines.hosts import LOST, Host, HostsEngine, host_environment
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import M, Message
from llmcurate.base.terminal import say

INSTALL = 'pip install "llmcurate[slurm]"'
FOLDER = ".slurm"  # folder in OUT for scripts, pickles of submitit, and logs of jobs
# A job that Slurm requeued would run in addition to the one that replaces it.
FIXED: dict[str, str | bool] = {"no_requeue": True}
LOCAL_MINUTES = 60 * 24 * 365  # jobs on this machine end with the run
HELLO_BYTES = 1 << 20
ASK_SECONDS = 5.0  # between submissions, so that jobs that end together are replaced together
QUEUE_SECONDS = 15.0  # between two calls of squeue
REPORT_SECONDS = 10.0
WAIT_SECONDS = 600.0  # between two messages while no job has started


class SlurmEngine(HostsEngine):
    """An engine on a Slurm cluster, to be used as a context manager. Raises UsageError if submitit
    or sbatch is missing. `workers` is the largest number of jobs, and `most` the largest number of
    tasks at one time. `jobs` says how to ask for jobs. `address` is the HOST or HOST:PORT under
    which nodes reach this machine; with None the machine's names and addresses are tried. Every
    node must see the files in `shared` and the folder of `jobs`."""

    name = "Slurm"

    def __init__(
        self,
        workers: int,
        most: int | None,
        jobs: Jobs,
        address: str | None = None,
        tick: Callable[[], None] = lambda: None,
        shared: Iterable[str] = (),
    ) -> None:
        if workers < 1:
            raise UsageError("--engine slurm needs --workers N, the number of jobs")
        super().__init__(most, tick, jobs.folder, shared, jobs.store)
        self._local, self._options = sbatch_options(jobs.options)
        self._workers, self._address = workers, address
        self._home, self._quiet = jobs.folder.absolute() / FOLDER, jobs.quiet
        self._server: socket.socket | None = None
        self._arrived: SimpleQueue[tuple[Connection, Hello]] = SimpleQueue()
        self._awaited: dict[str, Any] = {}  # jobs that have not connected yet, by id
        self._asked_at = self._looked_at = self._reported_at = 0.0
        self._reported = 0  # number of started jobs last reported
        self._never_connected = 0  # jobs that ended before they connected
        self.logs = f"the logs in {self._home}, and whether it needs more --slurm time= or mem="

    def _connect(self) -> None:
        try:
            import submitit
        except ImportError:
            raise UsageError(f"--engine slurm needs submitit: {INSTALL}") from None
        missing = [c for c in ("sbatch", "srun", "squeue", "scancel") if not shutil.which(c)]
        if missing and not self._local:
            raise UsageError(
                f"{missing[0]} is missing here: run this command on a machine of the cluster from"
                " which jobs are submitted, or try it with --slurm cluster=local"
            )
        self._count = (
            self._workers if self._most is None else min(self._workers, max(1, self._most))
        )
        earlier = [path.name.partition("_")[0] for path in self._home.glob("*_submission.sh")]
        if arrays := [number for number in earlier if number.isdigit() and not self._local]:
            name = f"--name={self._options['job_name']}"
            subprocess.run(["scancel", name, *arrays], capture_output=True)
        remove(self._home, inside=self._home.parent)
        self._home.mkdir(mode=0o700)  # its files contain the key
        if self._local:
            self._executor: Any = submitit.LocalExecutor(self._home)
            self._executor.update_parameters(timeout_min=LOCAL_MINUTES)
        else:
            self._executor = submitit.SlurmExecutor(self._home)
            self._executor.update_parameters(
                wckey=None,
                array_parallelism=self._count,
                additional_parameters=self._options | FIXED,
            )
        self._listen()

    def _listen(self) -> None:
        host, _, port = (self._address or "").partition(":")
        if port and not port.isdigit():
            raise UsageError(f"--address {self._address}: give HOST or HOST:PORT of this machine")
        try:
            place = ("127.0.0.1" if self._local else "", int(port or 0))
            self._server = socket.create_server(place, backlog=1024)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--address {self._address}: {error}") from None
        hosts = (host,) if host else ("127.0.0.1",) if self._local else own_hosts()
        self._key = secrets.token_bytes(32)
        self._job = Job(
            hosts,
            self._server.getsockname()[1],
            self._key,
            host_environment(),
            str(Path.cwd()),
            tuple(self.must_see()),
        )
        threading.Thread(target=self._accept_connections, args=(self._server,), daemon=True).start()

    def _accept_connections(self, server: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                opened, _ = server.accept()
                threading.Thread(target=self._greet, args=(opened,), daemon=True).start()

    def _greet(self, opened: socket.socket) -> None:
        """Accept a job that knows the key. Runs in a thread, because a caller may stay silent."""
        with opened:
            connection = connection_over(opened)
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            self._arrived.put((connection, receive(connection, Hello, HELLO_BYTES)))
        except (OSError, EOFError, AuthenticationError, AssertionError, ValueError):
            connection.close()

    def _add_arrived(self) -> list[Hello]:
        hellos = []
        with suppress(Empty):
            while True:
                connection, hello = self._arrived.get_nowait()
                hellos.append(hello)
                self._idle.append(connection)
        return hellos

    def _starting(self) -> int:
        return len(self._awaited)

    def _start(self, count: int) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError
        from submitit.helpers import clean_env, environment_variables

        soon = bool(self._asked_at) and time.monotonic() - self._asked_at < ASK_SECONDS
        if soon and not self._local:
            return
        # Inside a job, its variables would be read as options of the new jobs.
        within = clean_env() if "SLURM_JOB_ID" in os.environ else nullcontext()
        # submitit starts Python by `-m`, which otherwise searches this folder for modules first.
        safe = environment_variables(PYTHONSAFEPATH="1")
        try:
            with within, safe, redirect_stderr(StringIO()):
                jobs = self._executor.submit_array([self._job] * count)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            lines = [line.removeprefix("sbatch: error: ") for line in str(error).splitlines()]
            raise RunFailed(f"sbatch rejected the jobs: {'; '.join(lines)}") from None
        self._asked_at = self._looked_at = time.monotonic()
        self._awaited |= {job.job_id: job for job in jobs}
        name = jobs[0].job_id.partition("_")[0]
        first = "" if self._idle or self._busy else "; work begins with the first that starts"
        self._report(f"asked for {counted(len(jobs), 'job')} ({name}){first}")

    def _hand_out(self, worker: Connection, call: Call, task: Any) -> None:
        self._busy[worker] = (worker, task)
        with suppress(OSError):  # if it has disconnected, reading its answer shows that
            send(worker, call)

    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        self._accept_arrived()
        workers: list[Any] = [*self._idle, *self._busy]
        for connection in wait(workers, 0.5):
            assert isinstance(connection, Connection)
            _, task = self._busy.pop(connection, (None, None))
            reply = None
            with suppress(EOFError, OSError):
                reply = receive(connection, Reply)
            if task is None:
                self._idle.remove(connection)
            if reply is None or reply.last:
                connection.close()
            else:
                self._idle.append(connection)
            if task is not None:
                if reply is None:
                    self._count_loss(task)
                yield task, reply.answer() if reply else None
        self._look_for_awaited()

    def _accept_arrived(self) -> None:
        for hello in self._add_arrived():
            self._awaited.pop(hello.id, None)
            self._accept(hello)
        started = len(self._idle) + len(self._busy)
        after = time.monotonic() - self._reported_at
        if started > self._reported and (
            after > REPORT_SECONDS or not self._reported or not self._awaited
        ):
            self._report(f"{started} of {started + len(self._awaited)} jobs have started")
            self._reported = started
        if not started and self._awaited and after > WAIT_SECONDS:
            minutes = int((time.monotonic() - self._asked_at) / 60)
            self._report(f"no job has started after {minutes} minutes: `squeue --me` says why")
        self._reported = min(self._reported, started)

    def _report(self, message: str) -> None:
        self._reported_at = time.monotonic()
        say(f"slurm: {message}", self._quiet)

    def _look_for_awaited(self) -> None:
        """Replace jobs that ended before they connected. After too many of these, continue with the
        other jobs. Raises RunFailed if no job is left."""
        if not self._awaited or (
            not self._local and time.monotonic() - self._looked_at < QUEUE_SECONDS
        ):
            return
        self._looked_at = time.monotonic()
        for identity in self._ended():
            job = self._awaited.pop(identity)
            self._never_connected += 1
            if self._never_connected <= LOST:
                continue
            if not (self._idle or self._busy or self._awaited):
                raise RunFailed(
                    f"{self._never_connected} jobs ended before they connected"
                    f" ({self._reason_for_end(job)})"
                )
            self._count = max(1, self._count - 1)

    def _ended(self) -> list[str]:
        if self._local:
            return [identity for identity, job in self._awaited.items() if job.done()]
        arrays = ",".join(sorted({identity.partition("_")[0] for identity in self._awaited}))
        # Not sacct, which submitit uses: not every cluster keeps accounts.
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--jobs={arrays}"]
        reply = subprocess.run(command, capture_output=True, text=True)
        if reply.returncode and "Invalid job id" not in reply.stderr:
            return []  # Slurm's controller does not answer; try again later
        return sorted(self._awaited.keys() - set(reply.stdout.split()))

    def _reason_for_end(self, job: Any) -> str:
        reason = (
            f"nodes must see {self._home.parent} and reach this machine at {self._job.hosts[0]}"
        )
        with suppress(OSError):
            text = Path(job.paths.stderr).read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            ends = [line for line in lines if not line.startswith("srun: error")] or lines
            reason = "".join(c for c in ends[-1] if c.isprintable())[:300] if ends else reason
        reason = reason.removeprefix("llmcurate.base.errors.RunFailed: ")
        return f"{reason}; see the logs in {self._home}"

    def close(self) -> None:
        super().close()
        if self._server is None:
            return
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts jobs
        self._server.close()
        self._server, self._connected = None, False
        self._add_arrived()
        for connection in (*self._idle, *self._busy):
            connection.close()
        if self._local:
            for job in self._awaited.values():
                job.cancel()
        elif self._awaited:
            subprocess.run(["scancel", *self._awaited], capture_output=True)
        self._idle.clear()
        self._busy.clear()
        self._awaited.clear()


def own_hosts() -> tuple[str, ...]:
    """Return the names and addresses of this machine. The first is most likely to be reachable."""
    import psutil

    interfaces = [a for entries in psutil.net_if_addrs().values() for a in entries]
    addresses = [a.address for a in interfaces if a.family == socket.AF_INET]
    outside = [a for a in addresses if not a.startswith("127.")]
    return tuple(dict.fromkeys((socket.getfqdn(), socket.gethostname(), *outside)))


REACH_SECONDS = 10
# Slurm sends the first signal when the job's time is nearly over (90 seconds before, as submitit
# asks), and the second when a job is preempted or cancelled.
LEAVE = (signal.SIGUSR2, signal.SIGTERM)
# A machine that disappears silently is noticed after a minute and a half.
KEEP_ALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 6,
    "TCP_USER_TIMEOUT": 90_000,  # milliseconds, if data was sent
}


class DriverGone(Exception):
    """The exception of a job whose driver has ended or has no work left for the job."""


@dataclass(frozen=True)
class Job:
    """A job's code: submitit unpickles this object on the node and calls it. The job tries to reach
    the driver at `port` of each of `hosts`, in this order. `key` is the secret key of the run.
    `environment` and `folder` are as in `Host`. The node must see the paths `files`."""

    hosts: tuple[str, ...]
    port: int
    key: bytes
    environment: dict[str, str]
    folder: str
    files: tuple[str, ...]

    def __call__(self) -> None:
        """Do tasks until the driver or the job's time ends. Raises RunFailed without a driver."""
        import submitit

        notice = _Notice()
        connection = self._call_driver()

        def look_for_driver() -> None:
            # The driver sends nothing to a working host, so readable data means its end.
            if connection.poll(0):
                raise DriverGone

        host = Host(self.environment, self.folder, look_for_driver)
        try:
            job: str = submitit.JobEnvironment().job_id
            send(connection, host.hello(self.files, job))
            while not notice.arrived():
                if connection.poll(0.5):
                    answer = host.run(receive(connection, Call))
                    send(connection, Reply(line_of(answer).decode(), notice.arrived()))
        except (DriverGone, EOFError, OSError):
            pass
        finally:
            connection.close()
            host.end()

    def checkpoint(self) -> None:
        """Do nothing, so that submitit does not requeue the job. The driver asks for a new job."""

    def _call_driver(self) -> Connection:
        problems = []
        for host in self.hosts:
            try:
                with socket.create_connection((host, self.port), timeout=REACH_SECONDS) as opened:
                    opened.settimeout(None)
                    connection = connection_over(opened)
                answer_challenge(connection, self.key)
                deliver_challenge(connection, self.key)
                return connection
            except (OSError, EOFError, AuthenticationError, AssertionError) as error:
                problems.append(f"{host}: {str(error) or type(error).__name__}")
        raise RunFailed(
            f"{socket.gethostname()} cannot reach the driver at port {self.port}"
            f" ({'; '.join(problems)});"
            " give --address HOST, this command's machine as nodes know it"
        )


class _Notice:
    """Watches for the Slurm signal that tells a job to leave soon. The job first finishes its task,
    if it can. Slurm sends the signal to all processes of a job: the host (this process) and its
    worker. Both block the signal, because it would end the worker, and the task would seem to have
    crashed. The host notices the signal by a handler or in the list of pending signals."""

    def __init__(self) -> None:
        self._caught = False

        def catch(number: int, frame: object) -> None:
            self._caught = True

        for number in LEAVE:
            signal.signal(number, catch)
        signal.pthread_sigmask(signal.SIG_BLOCK, LEAVE)

    def arrived(self) -> bool:
        return self._caught or bool(signal.sigpending() & set(LEAVE))


def connection_over(opened: socket.socket) -> Connection:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(os.dup(opened.fileno()))


def send(connection: Connection, message: Message) -> None:
    connection.send_bytes(message.to_json())


def receive(connection: Connection, kind: type[M], most: int | None = None) -> M:
    """Return the next message of a connection. Raises EOFError or OSError if the connection is
    closed or the message is longer than `most` bytes, and ValueError if the message is not of the
    type `kind`."""
    return kind.from_json(connection.recv_bytes(most))
