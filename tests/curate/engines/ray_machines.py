"""Clusters of Ray on this machine, whose nodes join, leave, die and hang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}


def machines(cpus: int) -> Cluster:
    """A cluster of one machine, which others may join; one that hangs is noticed within seconds."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    soon = {
        "health_check_period_ms": 500,
        "health_check_timeout_ms": 1500,
        "health_check_failure_threshold": 3,
    }
    head = {"num_cpus": cpus, "include_dashboard": False, "_system_config": soon}
    return Cluster(initialize_head=True, head_node_args=NODE | head)


def agent(node: Any) -> psutil.Process:
    """The raylet of a node."""
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


@contextmanager
def hanging() -> Iterator[Callable[[Any], None]]:
    """Lets all of a node hang that it is called with; ends its processes at the end."""
    processes: list[psutil.Process] = []

    def hang(node: Any) -> None:
        processes.extend([agent(node), *agent(node).children(recursive=True)])
        for process in processes:
            process.suspend()

    try:
        yield hang
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def autoscaling(most: int) -> Iterator[str]:
    """The address of a cluster without a CPU, whose autoscaler starts machines of two, at most so
    many. Ray's own AutoscalingCluster would end all clusters of this machine, and needs a file that
    its wheels do not have."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    kinds = {
        "small": {
            "resources": {"CPU": 2},
            "node_config": {},
            "min_workers": 0,
            "max_workers": most,
        },
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    }
    provider = {"type": "fake_multinode", "launch_multiple": True, "gcs_address": address}
    empty = "initialization setup head_setup worker_setup head_start_ray worker_start_ray".split()
    config = {f"{name}_commands": [] for name in empty} | {
        "cluster_name": "fake", "max_workers": most, "provider": provider, "auth": {},
        "docker": {}, "file_mounts": {}, "cluster_synced_files": [], "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5, "head_node_type": "ray.head.default",
        "available_node_types": kinds,
    }  # fmt: skip
    environment = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        # Else Ray asks for a token where one lies in the home folder, and gives this process none.
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "disabled"),
    }
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, for sockets have their names in it
    path = folder / "autoscaler.json"
    path.write_text(json.dumps(config))
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *(f"--port={address.partition(':')[2]}", "--num-cpus=0", "--include-dashboard=false"),
            *(f"--object-store-memory={80 << 20}", f"--autoscaling-config={path}"),
            f"--temp-dir={folder}/ray",
        ],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", address[10:]), 1):
                break
            time.sleep(0.1)
        yield address
    finally:
        ours = [head.pid]
        for process in psutil.process_iter(["cmdline"]):
            if any(f"{folder}/" in word for word in process.info["cmdline"] or []):
                ours.append(process.pid)
        for pid in ours:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(folder)
