"""The kill script of `cargo xtask chaos --only sums` against torchft over gloo: replicas sum, one is killed with SIGKILL
after so many committed sums, and the others go on. Replica i contributes 2**i in an integer lane, so that a sum names its
contributors. Prints one line of JSON: the stall of each run (the longest gap between two committed sums of a survivor less
the median gap), wrong sums, and sums that were thrown away and made again.

    python torchft_kill.py --replicas 2 --runs 10            torchft with its own defaults, but for the timeouts below

torchft 0.2.0 from PyPI; its lighthouse is started here. Defaults of torchft: a replica that is lost is noticed by the
lighthouse after `heartbeat_timeout_ms` (5000) and by gloo at once when its sockets close.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

ROUNDS = 150
PAUSE = 0.004
NUMBERS = 500


def replica(index, lighthouse):
    from datetime import timedelta

    import torch
    from torch.distributed import ReduceOp, TCPStore
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    state = {"rounds": 0}
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=lambda loaded: state.update(loaded),
        state_dict=lambda: dict(state),
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica_{index}",
        timeout=timedelta(seconds=10),
    )
    while state["rounds"] < ROUNDS:
        manager.start_quorum()
        tensor = torch.zeros(NUMBERS, dtype=torch.int64)
        tensor[0] = 1 << index
        tensor[1:] = index + state["rounds"]
        manager.allreduce(tensor, reduce_op=ReduceOp.SUM).wait()
        count = manager.num_participants()
        if manager.should_commit():
            names = int(tensor[0])
            members = [bit for bit in range(16) if names >> bit & 1]
            expected = sum(member + state["rounds"] for member in members)
            right = len(members) == count and bool((tensor[1:] == expected).all())
            told = {"round": state["rounds"], "names": names, "right": right}
            state["rounds"] += 1
        else:
            told = {"round": state["rounds"], "again": True}
        print(json.dumps({**told, "at": time.monotonic()}), flush=True)
        time.sleep(PAUSE)
    manager.shutdown(wait=False)
    os._exit(0)


def run(replicas, seed):
    from torchft.coordination import LighthouseServer

    rng = random.Random(seed)
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=2_000)
    address = lighthouse.address()
    start = lambda index: subprocess.Popen(
        [sys.executable, __file__, "--replica", str(index), "--lighthouse", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    processes = [start(index) for index in range(replicas)]
    victim, after = rng.randrange(replicas), rng.randrange(20, 100)
    lines = []
    for line in processes[victim].stdout:
        lines.append(json.loads(line))
        if lines[-1]["round"] >= after:
            break
    processes[victim].send_signal(signal.SIGKILL)
    histories = {}
    for index, process in enumerate(processes):
        if index == victim:
            process.wait()
            continue
        try:
            out, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        histories[index] = [json.loads(line) for line in out.splitlines()]
    lighthouse.shutdown()
    done = [line for history in histories.values() for line in history if "names" in line]
    stalls = []
    for history in histories.values():
        times = [line["at"] for line in history if "names" in line]
        gaps = sorted(later - earlier for earlier, later in zip(times, times[1:]))
        if gaps:
            stalls.append(gaps[-1] - statistics.median(gaps))
    return {
        "stall": max(stalls, default=None),
        "hangs": sum(1 for history in histories.values() if not history or history[-1]["round"] < ROUNDS - 1),
        "wrong": sum(1 for line in done if not line["right"]),
        "again": sum(1 for history in histories.values() for line in history if "again" in line),
        "sums": len(done),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replica", type=int)
    parser.add_argument("--lighthouse")
    arguments = parser.parse_args()
    if arguments.replica is not None:
        return replica(arguments.replica, arguments.lighthouse)
    runs = [run(arguments.replicas, arguments.seed + at) for at in range(arguments.runs)]
    stalls = sorted(it["stall"] for it in runs if it["stall"] is not None)
    total = {key: sum(it[key] for it in runs) for key in ["hangs", "wrong", "again", "sums"]}
    print(json.dumps({
        "peer": "torchft 0.2.0, gloo",
        "replicas": arguments.replicas,
        "runs": len(runs),
        **total,
        "stall_p50": stalls[len(stalls) // 2] if stalls else None,
        "stall_max": stalls[-1] if stalls else None,
    }))


if __name__ == "__main__":
    main()
