"""Fake Slurm commands, as far as the engine uses them.

`install` makes sbatch, srun, squeue and scancel of this file. FAKE_SLURM names a folder; its file
`slots` says how many jobs start, the others wait for ever.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HOME = Path(os.environ.get("FAKE_SLURM", ""))


def install(folder: Path, slots: int) -> dict[str, str]:
    """Makes a cluster in the folder; the variables of the environment that lead to it."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("sbatch", "srun", "squeue", "scancel"):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        script.chmod(0o755)
    (folder / "slots").write_text(str(slots))
    return {"FAKE_SLURM": str(folder), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def alive(job: Path) -> bool:
    """Whether a job waits or runs."""
    number = job.read_text()
    if not number:
        return True
    with suppress(OSError):
        return "(bash) Z" not in Path(f"/proc/{number}/stat").read_text()
    return False


def sbatch(path: str) -> None:
    script = Path(path).read_text()
    if "--partition=nope" in script:
        sys.exit(
            "sbatch: error: invalid partition specified: nope\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )
    number = len(list(HOME.glob("*.sh"))) + 100
    (HOME / f"{number}.sh").write_text(script)
    array = re.search(r"--array=0-(\d+)", script)
    for index in range(int(array[1]) + 1 if array else 1):
        job = HOME / (f"{number}_{index}.job" if array else f"{number}.job")
        job.touch()
        place = {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(index)}
        variables = {"SLURM_JOB_ID": str(number + index), **(place if array else {})}
        if len(list(HOME.glob("*.job"))) <= int((HOME / "slots").read_text()):
            process = subprocess.Popen(
                ["bash", path],
                env=os.environ | variables,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            job.write_text(str(process.pid))
    print(f"Submitted batch job {number}")


def srun(*words: str) -> None:
    pattern = re.compile("%([Aajt])")
    number = os.environ.get("SLURM_ARRAY_JOB_ID", os.environ["SLURM_JOB_ID"])
    values = {"A": number, "a": os.environ.get("SLURM_ARRAY_TASK_ID", ""), "j": number, "t": "0"}
    arguments = [pattern.sub(lambda found: values[found[1]], word) for word in words]
    for option, descriptor in (("--output", 1), ("--error", 2)):
        file = arguments[arguments.index(option) + 1]
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    command = arguments[arguments.index("--error") + 2 :]
    os.execvp(command[0], command)


def squeue(*options: str) -> None:
    print(*(job.stem for job in HOME.glob("*.job") if alive(job)), sep="\n")


def scancel(*words: str) -> None:
    with open(HOME / "cancelled", "a") as log:
        print(*words, file=log)
    for job in HOME.glob("*.job"):
        if job.stem in words or job.stem.partition("_")[0] in words:
            if number := job.read_text():
                with suppress(OSError):
                    os.killpg(int(number), signal.SIGTERM)
            job.unlink()


if __name__ == "__main__":
    {"sbatch": sbatch, "srun": srun, "squeue": squeue, "scancel": scancel}[sys.argv[1]](
        *sys.argv[2:]
    )
