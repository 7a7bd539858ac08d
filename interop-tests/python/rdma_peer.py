"""A foreign peer of the driver `rdma`, with pyverbs: it shares no line with the driver.

The arguments are the version of the protocol, the address of this end, host and port of a server, a file, and cases. `put` stores the
file, `get` fetches it and compares it, `get-into-a-longer-ring` exchanges the ring meanwhile; every other case breaks the protocol in one
way (see `CASES`), and then stores a part of the file in another session. For each case a line is printed: its name, and the last reply of
the server to it.

docs/decisions/rdma-engine.md describes the protocol; the layout of records, messages and notices is that of
drivers/rdma/src/handshake/encoding.rs and drivers/rdma/src/engine/message.rs. RDMA devices and queue pairs need Debian's package
python3-pyverbs.
"""

import contextlib
import ftplib
import ipaddress
import os
import pathlib
import secrets
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

# Records of the handshake.
NAME = b"GHRDMA\r\n"
OFFER, ANSWER, RING, REFUSAL, FABRIC, READY, PATH = range(1, 8)
# The sender moves the bytes, by WRITEs.
PUT = 0
# The method of connecting queue pairs.
ROCE = 4
# Which packets of this end arrive.
ALL = 2
# enum ibv_mtu: 4096 bytes.
LONGEST_MTU = 5

# Messages.
ARRIVED, CREDIT, END, CARRIED, PADDED, RING_OFFER, SWITCH, LEFT = 1, 2, 3, 5, 6, 7, 8, 9

# The server has a ring of this length as well, and where no option says so, rings may be exchanged for others.
STACK = "rdma:provider=verbs;slab=256K;slabs=4"
STACK_THAT_GROWS = "rdma:provider=verbs"
RING_BYTES = 1 << 20
LONGER_RING_BYTES = 2 << 20
PIECE_BYTES = 64 << 10
# Pieces that may be in flight, and room for all messages of the server that follow from that.
PIECES = 64
SLOTS = 256
SLOT_BYTES = 64

SECONDS = 30


class Refused(Exception):
    """The server refused in the handshake."""


class Lost(Exception):
    """A request was not carried out: the queue pair is in the error state."""


class Device:
    """The device that has an address, and its index among the addresses (GIDs) of the port for RoCE v2."""

    def __init__(self, address):
        self.gid = ipaddress.IPv6Address(f"::ffff:{address}").packed
        name, self.index = self.find()
        self.context = Context(name=name)

    def find(self):
        for gid in pathlib.Path("/sys/class/infiniband").glob("*/ports/1/gids/*"):
            kind = gid.parents[1] / "gid_attrs/types" / gid.name
            # An entry without an address has no type.
            with contextlib.suppress(OSError):
                is_ours = ipaddress.IPv6Address(gid.read_text().strip()).packed == self.gid
                if is_ours and kind.read_text().strip() == "RoCE v2":
                    return gid.parents[3].name, int(gid.name)
        raise SystemExit("no device has the address")


class Channel:
    """A data connection, its queue pair and both rings."""

    def __init__(self, peer, address, grows):
        self.version = peer.version
        self.device = peer.device
        self.grows = grows
        self.socket = socket.create_connection(address, timeout=SECONDS)
        self.pieces = {}
        self.carried, self.padding = {}, {}
        self.credit = 0
        self.end = None
        # The ring that this end has offered, where the stream moves to it, and whether it has left the first one.
        self.longer, self.moves_at, self.has_left = None, None, False
        self.posted = self.done = 0

    def write_record(self, kind, content=b""):
        head = NAME + struct.pack("!BBH", self.version, kind, len(content))
        self.socket.sendall(head + content)

    def read_record(self, wanted):
        name, _, kind, length = struct.unpack("!8sBBH", self.read(12))
        content = self.read(length)
        if kind == REFUSAL:
            raise Refused(content.decode(errors="replace"))
        assert name == NAME and kind == wanted, (name, kind, wanted)
        return content

    def read(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise Refused("the server closed the connection")
            data += more
        return bytes(data)

    def offer(self):
        """Both ends agree on the lengths of rings."""
        numbers = struct.pack("!QQHHBBH", RING_BYTES, RING_BYTES, 1, PIECES, PUT, 1, 0)
        # Files may begin anywhere in the ring; one adapter, and one path between adapters.
        numbers += bytes([0, 1, 1, self.grows])
        # The rate and the round trip of the path are not known.
        self.write_record(OFFER, numbers + struct.pack("!BQI", ROCE, 0, 0))
        answer = self.read_record(ANSWER)
        self.outgoing, self.incoming = struct.unpack_from("!QQ", answer)
        assert answer[27] == self.grows, "whether rings may be exchanged"

    def register(self):
        """Both ends know the address of the ring that they write to."""
        self.domain = PD(self.device.context)
        self.source = MR(self.domain, self.outgoing, e.IBV_ACCESS_LOCAL_WRITE)
        self.sink = self.ring(self.incoming)
        self.slots = MR(self.domain, SLOTS * SLOT_BYTES, e.IBV_ACCESS_LOCAL_WRITE)
        self.write_record(RING, struct.pack("!QI", self.sink.buf, self.sink.rkey))
        self.there, self.key = struct.unpack("!QI", self.read_record(RING))

    def ring(self, length):
        """A ring that the server writes to."""
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        return MR(self.domain, length, access)

    def connect(self, gid=None):
        """Connects the queue pair; `gid` is what this end claims as its address."""
        self.completions = CQ(self.device.context, 2 * SLOTS)
        room = QPCap(max_send_wr=SLOTS, max_recv_wr=SLOTS)
        wanted = QPInitAttr(
            qp_type=e.IBV_QPT_RC, scq=self.completions, rcq=self.completions, cap=room
        )
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.pair = QP(self.domain, wanted, attributes)
        for slot in range(SLOTS):
            self.expect_message(slot)
        first = secrets.randbits(24)
        port = (gid or self.device.gid) + struct.pack("!HBBH", 0, LONGEST_MTU, 1, 0xFFFF)
        # For one path.
        self.write_record(FABRIC, b"\x01" + port + struct.pack("!II", self.pair.qp_num, first))
        _, *theirs = struct.unpack("!B16sHBBHII", self.read_record(FABRIC))
        attributes.path_mtu = min(theirs[2], LONGEST_MTU)
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = *theirs[5:], first
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        # 0.64 ms, 67 ms; 7 is no limit (InfiniBand architecture, volume 1, 9.7.5.2.8 and 9.7.6.1.3).
        attributes.min_rnr_timer, attributes.timeout = 12, 14
        attributes.retry_cnt, attributes.rnr_retry = 6, 7
        there = GID(ipaddress.IPv6Address(theirs[0]).exploded)
        route = GlobalRoute(dgid=there, sgid_index=self.device.index, hop_limit=64)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.pair.to_rts(attributes)
        self.write_record(READY)
        self.read_record(READY)

    def agree_on_path(self):
        """The server tests its packets; this end claims that its own arrive."""
        self.write_record(PATH, bytes([ALL]))
        assert self.read_record(PATH) == bytes([ALL])

    def open(self):
        self.offer()
        self.register()
        self.connect()
        self.agree_on_path()
        return self

    def close(self):
        self.socket.close()
        for name in ["pair", "completions", "source", "sink", "longer", "slots", "domain"]:
            if (resource := getattr(self, name, None)) is not None:
                resource.close()

    def expect_message(self, slot):
        place = SGE(self.slots.buf + slot * SLOT_BYTES, SLOT_BYTES, self.slots.lkey)
        self.pair.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[place]))

    def post(self, request):
        self.pair.post_send(request)
        self.posted += 1
        self.until(lambda: self.done == self.posted)

    def message(self, content):
        """Sends a message from the start of the ring: `post` returns when the device needs its bytes no more."""
        self.source.write(content, len(content))
        place = SGE(self.source.buf, len(content), self.source.lkey)
        self.post(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[place]))

    def piece(self, start, content, announced=None, key=None, address=None):
        """WRITEs a piece of the stream with its position; what is given is a lie."""
        offset = start % self.outgoing
        self.source.write(content, len(content), offset)
        place = SGE(self.source.buf + offset, len(content), self.source.lkey)
        announced = start if announced is None else announced
        request = SendWR(
            opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM,
            num_sge=1,
            sg=[place],
            imm_data=socket.htonl(announced % (1 << 32)),
        )
        key = self.key if key is None else key
        address = self.there + offset if address is None else address
        request.set_wr_rdma(key, address)
        self.post(request)

    def until(self, is_done):
        deadline = time.monotonic() + SECONDS
        while not is_done():
            if not self.poll():
                assert time.monotonic() < deadline, "the server is silent"
                # The server shares the processor.
                time.sleep(0.0005)

    def poll(self):
        count, completions = self.completions.poll(16)
        for completion in completions:
            if completion.status != e.IBV_WC_SUCCESS:
                raise Lost(completion.status)
            if completion.opcode & e.IBV_WC_RECV:
                self.received(completion)
                self.expect_message(completion.wr_id)
            else:
                self.done += 1
        return count

    def received(self, completion):
        if completion.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM:
            self.pieces[socket.ntohl(completion.imm_data)] = completion.byte_len
            return
        content = self.slots.read(completion.byte_len, completion.wr_id * SLOT_BYTES)
        kind, position = struct.unpack_from("!BQ", content)
        if kind == CREDIT:
            self.credit = position
        elif kind == END:
            self.end = position
        elif kind == SWITCH:
            self.window, number = struct.unpack_from("!QI", content, 9)
            assert number == 1, number
            self.moves_at = position
        elif kind == LEFT:
            assert position == 1, position
            self.has_left = True
        elif kind == ARRIVED:
            (self.pieces[position],) = struct.unpack_from("!I", content, 9)
        elif kind in (CARRIED, PADDED):
            self.carried[position] = content[9:] if kind == CARRIED else content[13:]
            # Positions without bytes.
            padding = int.from_bytes(content[9:13], "big") if kind == PADDED else 0
            self.padding[position] = padding
        else:
            raise AssertionError(f"a message of the kind {kind}")

    def send(self, content):
        position = 0
        while position < len(content):
            room = min(self.credit + self.outgoing - position, PIECE_BYTES)
            # A piece does not go on at the start of the ring.
            left = self.outgoing - position % self.outgoing
            length = min(room, left, len(content) - position)
            if length > 0:
                self.piece(position, content[position : position + length])
                position += length
            else:
                self.until(lambda: self.credit + self.outgoing > position)
        self.message(struct.pack("!BQ", END, position))

    def taken(self, position, length):
        """Bytes of the stream, from the ring that they are in."""
        if self.moves_at is None or position < self.moves_at:
            return self.sink.read(length, position % self.incoming)
        return self.longer.read(length, position % LONGER_RING_BYTES)

    def offer_ring(self, number=1, length=LONGER_RING_BYTES, wrong=0):
        """Another ring for the stream to move to; with `wrong` its key is wrong."""
        self.longer = self.ring(LONGER_RING_BYTES)
        key = self.longer.rkey ^ wrong
        self.message(struct.pack("!BQQII", RING_OFFER, length, self.longer.buf, number, key))

    def receive(self, moves=False):
        """The whole stream; with `moves`, in a longer ring from some place on."""
        content, position, credited = bytearray(), 0, 0
        while self.end is None or position < self.end:
            # The file is shorter than what 32 bits count.
            self.until(
                lambda: position in self.pieces or position in self.carried or self.end is not None
            )
            while position in self.pieces or position in self.carried:
                if length := self.pieces.pop(position, 0):
                    content += self.taken(position, length)
                    position += length
                else:
                    carried = self.carried.pop(position)
                    content += carried
                    position += len(carried) + self.padding.pop(position)
            if position - credited >= self.incoming // 4 and self.end is None:
                # The ring of the server grows to a multiple of what it has credit for.
                if moves and credited > 0 and self.longer is None:
                    self.offer_ring()
                    # Without credit the server does not get to the end of the stream first.
                    self.until(lambda: self.moves_at is not None)
                    assert self.window == LONGER_RING_BYTES, self.window
                credited = position
                self.message(struct.pack("!BQ", CREDIT, credited))
                if self.has_left and self.sink is not None:
                    # A WRITE to it would end the queue pair.
                    self.sink.close()
                    self.sink = None
        return bytes(content)


class Peer:
    """What the cases need."""

    def __init__(self, version, here, host, port, file):
        self.version = int(version)
        self.device = Device(here)
        self.server = (host, int(port))
        self.content = pathlib.Path(file).read_bytes()

    @contextlib.contextmanager
    def transfer(self, command, grows=False):
        """A data connection for this command, and a function that waits for the last reply."""
        with ftplib.FTP() as control:
            control.connect(*self.server, timeout=2 * SECONDS)
            control.login()
            control.voidcmd("TYPE I")
            stack = STACK_THAT_GROWS if grows else STACK
            control.sendcmd(f"SITE SETNETSTACK {stack}")
            channel = Channel(self, control.makepasv(), grows)
            control.putcmd(command)
            try:
                yield channel, lambda: last_reply(control)
            finally:
                channel.close()

    def put(self, name="put", length=None):
        with self.transfer(f"STOR {name}") as (channel, reply):
            channel.open().send(self.content[:length])
            return reply()

    def get(self):
        with self.transfer("RETR file") as (channel, reply):
            assert channel.open().receive() == self.content, "other bytes arrived"
            return reply()

    def get_into_a_longer_ring(self):
        with self.transfer("RETR file", grows=True) as (channel, reply):
            assert channel.open().receive(moves=True) == self.content, "other bytes arrived"
            assert channel.has_left and channel.sink is None, "the first ring is still used"
            return reply()

    def lie(self, lie, grows=False):
        """Opens a channel to store a file, and lies; then the server ends the transfer."""
        with self.transfer("STOR lie", grows) as (channel, reply):
            channel.open()
            with contextlib.suppress(Lost):
                lie(channel)
            return reply()

    def lie_and_leave(self, lie):
        """The same, but this end ends the connection when its queue pair is lost."""
        with self.transfer("STOR lie") as (channel, reply):
            channel.open()
            try:
                lie(channel)
            except Lost:
                channel.socket.close()
                return reply()
            raise AssertionError("the device of the server let it pass")

    def longer_ring_with_a_wrong_key(self):
        with self.transfer("RETR file", grows=True) as (channel, reply):
            channel.open()
            try:
                channel.offer_ring(wrong=0xFF00)
                channel.until(lambda: channel.moves_at is not None)
                channel.message(struct.pack("!BQ", CREDIT, channel.moves_at))
                channel.until(lambda: False)
            except Lost:
                channel.socket.close()
                return reply()

    def credit_too_large(self):
        with self.transfer("RETR file") as (channel, reply):
            channel.open()
            with contextlib.suppress(Lost):
                channel.message(struct.pack("!BQ", CREDIT, 1 << 60))
            return reply()

    def silent_in_handshake(self):
        with self.transfer("STOR lie") as (channel, reply):
            channel.offer()
            return reply()

    def silent(self):
        """Others are served meanwhile."""
        with self.transfer("STOR lie") as (channel, reply):
            channel.open()
            assert self.put("meanwhile").startswith("226")
            return reply()

    def other_address(self):
        with self.transfer("STOR lie") as (channel, reply):
            channel.offer()
            channel.register()
            with contextlib.suppress(Refused):
                channel.connect(gid=ipaddress.IPv6Address("::ffff:10.9.0.77").packed)
            return reply()

    def other_version(self):
        with self.transfer("STOR lie") as (channel, reply):
            channel.version += 1
            with contextlib.suppress(Refused):
                channel.offer()
            return reply()


def last_reply(control):
    while True:
        reply = control.getmultiline()
        if not reply.startswith("1"):
            return " ".join(reply.split())


def repeated(channel):
    channel.piece(0, bytes(1000))
    channel.piece(0, bytes(1000), announced=500)


def ended_early(channel):
    channel.piece(0, bytes(1000))
    channel.message(struct.pack("!BQ", END, 10))


CASES = {
    "put": Peer.put,
    "get": Peer.get,
    "get-into-a-longer-ring": Peer.get_into_a_longer_ring,
    "wrong-key": lambda peer: peer.lie_and_leave(
        lambda channel: channel.piece(0, bytes(1000), key=channel.key ^ 0xFF00)
    ),
    "wrong-key-then-silence": lambda peer: peer.lie(
        lambda channel: channel.piece(0, bytes(1000), key=channel.key ^ 0xFF00)
    ),
    "behind-the-ring": lambda peer: peer.lie_and_leave(
        lambda channel: channel.piece(0, bytes(1000), address=channel.there + channel.outgoing)
    ),
    "across-the-end-of-the-ring": lambda peer: peer.lie_and_leave(
        lambda channel: channel.piece(0, bytes(1000), address=channel.there + channel.outgoing - 1)
    ),
    "before-the-ring": lambda peer: peer.lie_and_leave(
        lambda channel: channel.piece(0, bytes(1000), address=channel.there - 4096)
    ),
    "position-beyond-credit": lambda peer: peer.lie(
        lambda channel: channel.piece(0, bytes(1000), announced=5 * channel.outgoing)
    ),
    "position-twice": lambda peer: peer.lie(repeated),
    "empty-piece": lambda peer: peer.lie(lambda channel: channel.piece(0, b"")),
    "unknown-message": lambda peer: peer.lie(lambda channel: channel.message(b"\x63" + bytes(8))),
    "end-before-data": lambda peer: peer.lie(ended_early),
    "credit-too-large": Peer.credit_too_large,
    "ring-of-a-channel-that-does-not-grow": lambda peer: peer.lie(Channel.offer_ring),
    "ring-out-of-turn": lambda peer: peer.lie(lambda channel: channel.offer_ring(number=7), grows=True),
    "ring-that-is-too-short": lambda peer: peer.lie(lambda channel: channel.offer_ring(length=1), grows=True),
    "move-to-no-ring": lambda peer: peer.lie(
        lambda channel: channel.message(struct.pack("!BQQI", SWITCH, 0, RING_BYTES, 1)), grows=True
    ),
    "longer-ring-with-a-wrong-key": Peer.longer_ring_with_a_wrong_key,
    "silence-in-handshake": Peer.silent_in_handshake,
    "silence": Peer.silent,
    "other-address": Peer.other_address,
    "other-version": Peer.other_version,
}


RIGHT = ("put", "get", "get-into-a-longer-ring")


def main(version, here, host, port, file, *cases):
    peer = Peer(version, here, host, port, file)
    for name in cases:
        print(name, CASES[name](peer), sep="\t", flush=True)
        if name not in RIGHT:
            again = peer.put("again", RING_BYTES // 2)
            assert again.startswith("226"), f"after {name}: {again}"


if sys.argv[1:] == ["--list"]:
    print(*CASES, sep="\n")
else:
    os.chdir("/")
    main(*sys.argv[1:])
