"""What loopback lets through both ways at once: two processes that send BYTES to each other over one TCP connection and
do nothing else with them. The bound of an all-reduce of two over TCP, where as much goes each way.

Usage: duplex_loopback.py BYTES REPEATS [caches|memory|plain]. From and into memory that stays in the caches, or from BYTES of
memory into as many, as an all-reduce must; or plainly, as such bandwidth is usually measured: on either side one process
that writes and one that reads, a megabyte at a time, over a connection as the system makes it.
Prints one line of JSON: seconds of one exchange, as the first process sees it.
"""

import json
import os
import select
import socket
import statistics
import sys
import time

PIECE = 512 << 10


def prepared(end):
    """Large buffers, and no pacing: what loopback can do at best."""
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        end.setsockopt(socket.SOL_SOCKET, buffer, 4 << 20)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return end


def exchange(peer, poll, source, target, size):
    """Sends and receives `size` bytes, going around in the source and in the target."""
    sent = received = 0
    while sent < size or received < size:
        before = sent + received
        if received < size:
            try:
                at = received % len(target)
                received += peer.recv_into(target[at:], min(PIECE, size - received, len(target) - at))
            except BlockingIOError:
                pass
        if sent < size:
            try:
                at = sent % len(source)
                sent += peer.send(source[at : at + min(PIECE, size - sent)])
            except BlockingIOError:
                pass
        if sent + received == before:
            poll.modify(peer, select.POLLIN | (select.POLLOUT if sent < size else 0))
            poll.poll(100)


def measure(peer, size, repeats, room):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setblocking(False)
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    # Of ones: a page that nobody has written is the one page of zeros.
    source, target = memoryview(b"1" * room), memoryview(bytearray(b"1" * room))
    seconds = []
    for _ in range(repeats + 2):
        exchange(peer, poll, source, target, 1)
        start = time.perf_counter()
        exchange(peer, poll, source, target, size)
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def plainly(peer, size, repeats, meet):
    """One process writes and this one reads; `meet` waits for the other side."""
    piece = memoryview(bytearray(b"1" * (1 << 20)))
    begun, begin = os.pipe()
    writer = os.fork()
    if writer == 0:
        while os.read(begun, 1) == b"w":
            for at in range(0, size, len(piece)):
                peer.sendall(piece[: min(len(piece), size - at)])
        os._exit(0)
    seconds = []
    for _ in range(repeats + 2):
        meet()
        start = time.perf_counter()
        os.write(begin, b"w")
        left = size
        while left > 0:
            left -= peer.recv_into(piece, min(len(piece), left))
        seconds.append(time.perf_counter() - start)
    os.write(begin, b"e")
    os.waitpid(writer, 0)
    return seconds[2:]


def meeting(send, receive):
    """Waits for the other side at the two ends of pipes."""

    def meet():
        os.write(send, b"m")
        os.read(receive, 1)

    return meet


if __name__ == "__main__":
    size, repeats = (int(word) for word in sys.argv[1:3])
    if sys.argv[3:] == ["plain"]:
        prepared = lambda end: end
        (heard, tell), (told, hear) = os.pipe(), os.pipe()
        measured = lambda peer, me: plainly(peer, size, repeats, meeting(*((tell, told) if me == 0 else (hear, heard))))
    else:
        room = size if sys.argv[3:] == ["memory"] else PIECE
        measured = lambda peer, me: measure(peer, size, repeats, room)
    with prepared(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        other = os.fork()
        if other == 0:
            with prepared(socket.socket()) as peer:
                peer.connect(listener.getsockname())
                measured(peer, 1)
            os._exit(0)
        peer, _ = listener.accept()
        with peer:
            seconds = measured(peer, 0)
        os.waitpid(other, 0)
    median = statistics.median(seconds)
    print(json.dumps({
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "median_seconds": median,
        "min_seconds": min(seconds),
        "gigabytes_per_second": size / median / 1e9,
    }))
