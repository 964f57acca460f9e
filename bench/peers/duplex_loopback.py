"""What loopback lets through both ways at once: two processes that send BYTES to each other over one TCP connection and
do nothing else with them. The bound of an all-reduce of two over TCP, where as much goes each way.

Usage: duplex_loopback.py BYTES REPEATS [caches|memory|plain|double]. From and into memory that stays in the caches, or from BYTES of
memory into as many, as an all-reduce must; or plainly, as such bandwidth is usually measured: on either side one process
that writes and one that reads, a megabyte at a time, over a connection as the system makes it. Double is memory over two
connections, half of it over each.
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


class Way:
    """One connection, and how much has gone over it in either direction."""

    def __init__(self, peer, source, target):
        self.peer, self.source, self.target = peer, source, target
        self.sent = self.received = 0

    def move(self, size):
        """Sends and receives what it can of `size` bytes, going around in the source and in the target. True if any moved."""
        before = self.sent + self.received
        if self.received < size:
            try:
                at = self.received % len(self.target)
                most = min(PIECE, size - self.received, len(self.target) - at)
                self.received += self.peer.recv_into(self.target[at:], most)
            except BlockingIOError:
                pass
        if self.sent < size:
            try:
                at = self.sent % len(self.source)
                self.sent += self.peer.send(self.source[at : at + min(PIECE, size - self.sent)])
            except BlockingIOError:
                pass
        return self.sent + self.received > before


def exchange(ways, poll, size):
    """Sends and receives `size` bytes over each way."""
    for way in ways:
        way.sent = way.received = 0
    while any(way.sent < size or way.received < size for way in ways):
        if not any([way.move(size) for way in ways]):
            for way in ways:
                poll.modify(way.peer, select.POLLIN | (select.POLLOUT if way.sent < size else 0))
            poll.poll(100)


def measure(peers, size, repeats, room):
    poll = select.poll()
    for peer in peers:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setblocking(False)
        poll.register(peer, select.POLLIN)
    # Of ones: a page that nobody has written is the one page of zeros.
    share = room // len(peers)
    ways = [Way(peer, memoryview(b"1" * share), memoryview(bytearray(b"1" * share))) for peer in peers]
    seconds = []
    for _ in range(repeats + 2):
        exchange(ways, poll, 1)
        start = time.perf_counter()
        exchange(ways, poll, size // len(peers))
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
        measured = lambda peers, me: plainly(peers[0], size, repeats, meeting(*((tell, told) if me == 0 else (hear, heard))))
    else:
        room = size if sys.argv[3:] in (["memory"], ["double"]) else PIECE
        measured = lambda peers, me: measure(peers, size, repeats, room)
    connections = 2 if sys.argv[3:] == ["double"] else 1
    with prepared(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(connections)
        other = os.fork()
        if other == 0:
            peers = [prepared(socket.socket()) for _ in range(connections)]
            for peer in peers:
                peer.connect(listener.getsockname())
            measured(peers, 1)
            os._exit(0)
        seconds = measured([listener.accept()[0] for _ in range(connections)], 0)
        os.waitpid(other, 0)
    median = statistics.median(seconds)
    print(json.dumps({
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "median_seconds": median,
        "min_seconds": min(seconds),
        "gigabytes_per_second": size / median / 1e9,
    }))
