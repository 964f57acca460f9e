"""What torchft does in the head to head of `cargo xtask chaos --torchft`: its lighthouse, and replicas that sum over gloo.
Replica i contributes 2**i in a lane of integers, so that a sum names its contributors, and numbers that everyone can
compute, so that everyone can check the rest. The chore kills one with SIGKILL and reads what the others print: a line of
JSON for each committed sum, as `named_sums` prints it, and for each that was thrown away and is made again.

    python torchft_kill.py lighthouse HEARTBEAT_TIMEOUT_MS QUORUM_TICK_MS
    python torchft_kill.py replica INDEX ADDRESS ROUNDS PAUSE_MS NUMBERS      sums once there is a file `go`

Replicas begin together because the first would else make sums alone. A replica that is lost is noticed by gloo when its
sockets close, and missed by the lighthouse after `heartbeat_timeout_ms`, 5000 unless told otherwise.
"""

import json
import os
import sys
import time
from datetime import timedelta

# The default of LighthouseServer: how long a quorum waits for a replica whose heart still beats.
JOIN_TIMEOUT_MS = 100
# A call that takes longer fails; longer than any timeout of the lighthouse here.
TIMEOUT = timedelta(seconds=10)
# Nobody waits longer for the others to be ready.
GO_SECONDS = 60
# Outlives every run; the chore ends it.
LIGHTHOUSE_SECONDS = 300


def lighthouse(heartbeat_timeout_ms, quorum_tick_ms):
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=JOIN_TIMEOUT_MS,
        quorum_tick_ms=quorum_tick_ms,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
    )
    # It names this host; only the loopback is listened at.
    port = server.address().rsplit(":", 1)[1]
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    time.sleep(LIGHTHOUSE_SECONDS)


def own(member, round_, at):
    """A whole number that is a member's own in this round."""
    return (member + 1) * 1_000_003 + round_ * 1_009 + at


def replica(index, address, rounds, pause_ms, numbers):
    import torch
    from torch.distributed import ReduceOp, TCPStore
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    state = {"rounds": 0}
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=lambda loaded: state.update(loaded),
        state_dict=lambda: dict(state),
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        lighthouse_addr=address,
        replica_id=f"replica_{index}",
        timeout=TIMEOUT,
        # What speaks to the lighthouse and to other replicas of this host.
        hostname="127.0.0.1",
    )
    print("ready", flush=True)
    by = time.monotonic() + GO_SECONDS
    while not os.path.exists("go") and time.monotonic() < by:
        time.sleep(0.002)
    places = torch.arange(numbers, dtype=torch.int64)
    while state["rounds"] < rounds:
        manager.start_quorum()
        # Whoever is behind has the others' state now.
        round_ = state["rounds"]
        lane = torch.tensor([1 << index], dtype=torch.int64)
        tensor = torch.cat([lane, places + own(index, round_, 0)])
        manager.allreduce(tensor, reduce_op=ReduceOp.SUM).wait()
        participants = manager.num_participants()
        if manager.should_commit():
            told = {"round": round_, "participants": participants, **checked(tensor, round_, places)}
            state["rounds"] += 1
        else:
            told = {"round": round_, "again": True}
        print(json.dumps(told), flush=True)
        time.sleep(pause_ms / 1000)
    # A clean end would wait for threads of the library that wait for the one who was killed.
    os._exit(0)


def checked(tensor, round_, places):
    """Whom a sum names, and the first number that is not theirs."""
    names = int(tensor[0])
    members = [bit for bit in range(63) if names >> bit & 1]
    expected = sum((places + own(member, round_, 0) for member in members), 0 * places)
    wrong = (tensor[1:] != expected).nonzero()
    first = int(wrong[0]) if len(wrong) else None
    return {"names": names, "members": members, "wrong": first, "digest": str(int(tensor.sum()))}


def main():
    match sys.argv[1:]:
        case ["lighthouse", *numbers]:
            lighthouse(*map(int, numbers))
        case ["replica", index, address, *numbers]:
            replica(int(index), address, *map(int, numbers))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
