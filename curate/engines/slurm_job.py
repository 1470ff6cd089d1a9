"""One job of the Slurm engine: it calls the driver back and works until the driver hangs up.

Driver and jobs talk over TCP. Both prove first that they know the run's key; then each message is
one JSON text (messages.py). That the connection is closed is how either learns that the other is
gone.
"""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from curate.engines.base import Call, Reply, line_of
from curate.engines.hosts import Host
from llmcurate.base.errors import RunFailed
from llmcurate.base.messages import M, Message

REACH_SECONDS = 10
# Slurm sends the first when the job's time is nearly over (submitit asks for 90 seconds ahead), the
# second when a job is preempted or cancelled.
LEAVE = (signal.SIGUSR2, signal.SIGTERM)
# A machine that is gone without a word is noticed after a minute and a half.
KEEP_ALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 6,
    "TCP_USER_TIMEOUT": 90_000,  # milliseconds, where something was sent
}


class DriverGone(Exception):
    """The driver has ended, or has no more work."""


@dataclass(frozen=True)
class Job:
    """Called in the job, after submitit has unpickled it there.

    hosts, port: where the driver may be reached, tried in this order; key: of the run;
    environment, folder: as of `Host`; files: what must be seen from here."""

    hosts: tuple[str, ...]
    port: int
    key: bytes
    environment: dict[str, str]
    folder: str
    files: tuple[str, ...]

    def __call__(self) -> None:
        """Does tasks until the driver ends, or the job's time does. RunFailed where nobody answers
        who knows the key."""
        notice = _Notice()
        connection = self._call_driver()

        def look_for_driver() -> None:
            # It sends nothing to a host that works: what can be read now is the end.
            if connection.poll(0):
                raise DriverGone

        host = Host(self.environment, self.folder, look_for_driver)
        try:
            send(connection, host.hello(self.files, job_id()))
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
        """Nothing, for submitit: that a job is not put into the queue again, since the driver asks
        for a new one."""

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
            f"{socket.gethostname()} reaches no driver at port {self.port} ({'; '.join(problems)});"
            " give --address HOST, as nodes know the machine of this command"
        )


class _Notice:
    """The notice that a job must leave soon. It finishes its task then, if it can.

    Slurm gives the signals to all processes of a job. Here a handler or the list of pending signals
    tells; the worker process takes over that they are blocked, so that they do not end it, which
    would look like a death that a document has caused."""

    def __init__(self) -> None:
        self._caught = False
        for number in LEAVE:
            signal.signal(number, self._catch)
        signal.pthread_sigmask(signal.SIG_BLOCK, LEAVE)

    def _catch(self, number: int, frame: object) -> None:
        self._caught = True

    def arrived(self) -> bool:
        """Return whether this job has to leave."""
        return self._caught or bool(signal.sigpending() & set(LEAVE))


def job_id() -> str:
    """Of the job that this process is in, as its submission names it."""
    import submitit

    identity: str = submitit.JobEnvironment().job_id
    return identity


def connection_over(opened: socket.socket) -> Connection:
    """Takes a socket over that is connected."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(os.dup(opened.fileno()))


def send(connection: Connection, message: Message) -> None:
    """OSError where the other side is gone."""
    connection.send_bytes(message.to_json())


def receive(connection: Connection, kind: type[M], most: int | None = None) -> M:
    """EOFError or OSError where the other side is gone, or sends more than so many bytes;
    ValueError where it sends something else."""
    return kind.from_json(connection.recv_bytes(most))
