#!/usr/bin/env python3
"""The communicator's ordered reduction beside Gloo's all-reduce, on the same vectors, in one run.

    scripts/bench-comm.py [--processes 4] [--mebibytes 4,64] [--iterations 30] [--rounds 3]

Gloo runs when PYTHON_WITH_TORCH names a Python that has torch; the two alternate, so that a busy
machine troubles both. Prints one JSON object per measurement and a table of the medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOO_MEMBER = """
import json, os, sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
sizes, iterations, warmup = json.loads(sys.argv[1]), int(sys.argv[2]), 3
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for mebibytes in sizes:
    vector = torch.ones(mebibytes * (1 << 20) // 4)
    times, cpu = [], []
    for i in range(warmup + iterations):
        vector.fill_(1.0 + rank)
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        dist.all_reduce(vector)
        took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        used = torch.tensor([time.process_time() - cpu_start], dtype=torch.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        dist.all_reduce(used)
        if i >= warmup:
            times.append(took.item())
            cpu.append(used.item())
    assert vector[-1].item() == world * (world + 1) / 2
    if rank == 0:
        times.sort()
        cpu.sort()
        median = times[len(times) // 2]
        print(json.dumps({
            "backend": "gloo", "transport": "tcp", "processes": world, "mebibytes": mebibytes,
            "p50_ms": round(median * 1e3, 3), "min_ms": round(times[0] * 1e3, 3),
            "cpu_ms": round(cpu[len(cpu) // 2] * 1e3, 3),
            "gigabytes_per_second": round(vector.nbytes / median / 1e9, 3)}), flush=True)
dist.destroy_process_group()
"""


def free_port():
    import socket
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_everstep(options, extra):
    command = [options.program, "--processes", str(options.processes),
               "--mebibytes", options.mebibytes, "--iterations", str(options.iterations), *extra]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_gloo(options, python):
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                       WORLD_SIZE=str(options.processes), GLOO_SOCKET_IFNAME="lo",
                       OMP_NUM_THREADS="1")
    sizes = json.dumps([int(size) for size in options.mebibytes.split(",")])
    members = [
        subprocess.Popen([python, "-c", GLOO_MEMBER, sizes, str(options.iterations)],
                         env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE, text=True)
        for rank in range(options.processes)]
    outputs = [member.communicate()[0] for member in members]
    if any(member.returncode for member in members):
        sys.exit("bench-comm: a Gloo process failed; its error is above")
    return outputs[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/bin/comm_benchmark"))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--mebibytes", default="4,64")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="how often the two alternate")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"bench-comm: {options.program} is not there; build the target comm_benchmark")
    python = os.environ.get("PYTHON_WITH_TORCH")
    lines = []
    for _ in range(options.rounds):
        outputs = [run_everstep(options, []), run_everstep(options, ["--tcp-only"])]
        if python:
            outputs.append(run_gloo(options, python))
        for line in "".join(outputs).splitlines():
            print(line, flush=True)
            lines.append(json.loads(line))
    if not python:
        print("bench-comm: set PYTHON_WITH_TORCH to measure Gloo as well", file=sys.stderr)

    print(f"\n{'size':>8} {'what':<16} {'p50 ms':>9} {'min ms':>9} {'cpu ms':>9} {'GB/s':>7}")
    keys = sorted({(m["mebibytes"], m["backend"], m["transport"]) for m in lines})
    for key in keys:
        same = [m for m in lines if (m["mebibytes"], m["backend"], m["transport"]) == key]
        p50, cpu = (statistics.median(m[name] for m in same) for name in ("p50_ms", "cpu_ms"))
        fastest = min(m["min_ms"] for m in same)
        rate = key[0] * (1 << 20) / p50 / 1e6
        print(f"{key[0]:>4} MiB {key[1] + ' ' + key[2]:<16} {p50:>9.2f} {fastest:>9.2f} "
              f"{cpu:>9.2f} {rate:>7.3f}")


if __name__ == "__main__":
    main()
