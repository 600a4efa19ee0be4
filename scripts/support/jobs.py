"""What scripts/demo and scripts/bench share: starting a run, watching it, finding its processes."""

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EVERSTEP = ROOT / "build" / "bin" / "everstep"
RUNS = ROOT / "everstep-runs"
POLL_SECONDS = 0.005
MEMORY_POLL_SECONDS = 0.2
# The kernel keeps 15 characters of a program's name.
WORKER_NAME = "everstep-worker"[:15]

# One training process that was killed, after which logged step.
Kill = collections.namedtuple("Kill", "pid rank step")
# seconds: the whole run. step_times: when each step was logged, in seconds since the start.
# peak_mebibytes: the largest resident memory of one process of the run.
Outcome = collections.namedtuple("Outcome", "code seconds step_times peak_mebibytes kills")


class JobError(Exception):
    """Something that a person has to see to; printed without a traceback."""


def find_output(name, folder):
    """The file of that name in a run's output, not a checkpoint's copy; None while it is missing."""
    for path in folder.rglob(name):
        if not any(part.startswith("checkpoint-") for part in path.parts):
            return path
    return None


def read_log(folder):
    """The complete lines of trainer_log.jsonl that carry a training loss."""
    path = find_output("trainer_log.jsonl", folder) if folder.exists() else None
    if path is None:
        return []
    lines = path.read_text().split("\n")[:-1]
    return [entry for entry in map(json.loads, lines) if "loss" in entry]


def read_process_file(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def descendants(ancestor):
    """pid -> program name of a process and of everything below it."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        found = re.search(rb"\((.*)\) . (\d+)", read_process_file(entry.name, "stat"), re.DOTALL)
        if entry.name.isdecimal() and found:
            parents[int(entry.name)] = int(found.group(2))
            names[int(entry.name)] = found.group(1).decode(errors="replace")
    family = {}
    for pid in parents:
        above = pid
        while above != ancestor and above in parents:
            above = parents[above]
        if above == ancestor:
            family[pid] = names[pid]
    return family


def find_worker(run_pid, rank):
    """The pid of the run's live training process with that rank; None if there is none."""
    for pid, name in descendants(run_pid).items():
        environment = read_process_file(pid, "environ").split(b"\0")
        if name == WORKER_NAME and f"RANK={rank}".encode() in environment:
            return pid
    return None


def peak_mebibytes(run_pid):
    """The largest resident memory that one process of the run has had so far."""
    peaks = [0]
    for pid in descendants(run_pid):
        found = re.search(rb"VmHWM:\s+(\d+) kB", read_process_file(pid, "status"))
        peaks.append(int(found.group(1)) // 1024 if found else 0)
    return max(peaks)


class Watch:
    """Follows one run: notes when each step was logged, and kills workers as asked."""

    def __init__(self, process, folder, planned_kills, on_kill):
        self._process = process
        self._folder = folder
        self._planned = list(planned_kills)
        self._on_kill = on_kill
        self.step_times = []
        self.kills = []
        self.peak_mebibytes = 0

    def follow(self):
        start = next_memory = time.monotonic()
        while self._process.poll() is None:
            now = time.monotonic()
            log = read_log(self._folder)
            while len(self.step_times) < len(log):
                self.step_times.append(now - start)
            if log and self._planned and log[-1]["current_steps"] >= self._planned[0][0]:
                self._kill_next()
            if now >= next_memory:
                self.peak_mebibytes = max(self.peak_mebibytes, peak_mebibytes(self._process.pid))
                next_memory = now + MEMORY_POLL_SECONDS
            time.sleep(POLL_SECONDS)
        return time.monotonic() - start

    def _kill_next(self):
        step, rank = self._planned[0]
        pid = find_worker(self._process.pid, rank)
        if pid is None:  # it is being replaced: try again at the next look
            return
        os.kill(pid, signal.SIGKILL)
        self._planned.pop(0)
        self.kills.append(Kill(pid, rank, step))
        self._on_kill(self.kills[-1])


def run_command(command, folder, kills=(), on_kill=lambda kill: None, **popen):
    """Runs a training command whose output appears in `folder`, which is emptied first.

    kills: (step, rank) pairs in the order of steps; the rank is killed with SIGKILL as soon as the
    step is logged.
    """
    if folder.exists():
        shutil.rmtree(folder)
    with subprocess.Popen(command, cwd=ROOT, **popen) as process:
        watch = Watch(process, folder, kills, on_kill)
        try:
            seconds = watch.follow()
        except KeyboardInterrupt:
            process.wait()  # it got the same signal and ends cleanly
            raise
        code = process.returncode
    return Outcome(code, seconds, watch.step_times, watch.peak_mebibytes, watch.kills)


def incidents(folder):
    """The incidents in the status of the run's job, newest first."""
    for path in sorted((folder / "state").rglob("*.json")):
        job = json.loads(path.read_text())
        found = job.get("status", {}).get("incidents") if isinstance(job, dict) else None
        if found:
            return found
    return []
