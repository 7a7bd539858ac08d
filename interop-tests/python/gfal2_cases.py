"""gfal2 through its Python bindings, as FTS and Rucio use it.

Arguments: the case, URL of the source directory, URL of the destination directory, the directory of
both on this machine, a directory outside of the servers' tree.
"""

import errno
import hashlib
import os
import stat
import zlib

import gfal2

from cases import case, directory, equal, raises, read, run, sample, write


class Context:
    def __init__(self, source, destination, remote, local):
        self.source, self.destination = source, destination
        self.remote, self.local = remote, local
        self.gfal = gfal2.creat_context()

    def parameters(self, **settings):
        """Settings of a copy."""
        parameters = self.gfal.transfer_parameters()
        for name, value in settings.items():
            setattr(parameters, name, value)
        return parameters

    def filecopy(self, *arguments):
        """Copies. After a copy gfal2 sometimes keeps its session marked as busy, with any
        server; then a new context is needed."""
        for _ in range(30):
            try:
                return self.gfal.filecopy(*arguments)
            except gfal2.GError as error:
                if "transfer already active on this handle" not in str(error):
                    raise
            self.gfal = gfal2.creat_context()
        raise RuntimeError("gfal2 takes each new session for busy")


def number(expected):
    """Expects this error number of gfal2, which clients evaluate."""
    return raises(gfal2.GError, lambda error: error.code == expected)


@case
def stat_file(it):
    write(f"{it.remote}/file", sample(1234), 0o640)
    os.utime(f"{it.remote}/file", (1_000_000_000, 1_000_000_000))
    found = it.gfal.stat(it.source + "file")
    equal(found.st_size, 1234)
    equal(found.st_mtime, 1_000_000_000)
    equal(oct(found.st_mode), oct(stat.S_IFREG | 0o640))


@case
def stat_directory(it):
    directory(f"{it.remote}/directory", 0o751)
    for url in ("directory", "directory/"):
        equal(oct(it.gfal.stat(it.source + url).st_mode), oct(stat.S_IFDIR | 0o751))


@case
def stat_errors(it):
    write(f"{it.remote}/file", b"x")
    directory(f"{it.remote}/dark", 0)
    with number(errno.ENOENT):
        it.gfal.stat(it.source + "nosuch")
    with number(errno.ENOTDIR):
        it.gfal.stat(it.source + "file/below")
    with number(errno.EACCES):
        it.gfal.stat(it.source + "dark/file")


@case
def stat_link(it):
    write(f"{it.remote}/file", sample(77))
    os.symlink("file", f"{it.remote}/link")
    os.symlink("nosuch", f"{it.remote}/dangling")
    equal(it.gfal.stat(it.source + "link").st_size, 77)
    with number(errno.ENOENT):
        it.gfal.stat(it.source + "dangling")


@case
def access(it):
    write(f"{it.remote}/file", b"x", 0o444)
    it.gfal.access(it.source + "file", os.R_OK)
    with number(errno.ENOENT):
        it.gfal.access(it.source + "nosuch", os.R_OK)


@case
def listdir(it):
    names = ["one", "two words", "ünï", ".hidden", "a;b=c"]
    for name in names:
        write(f"{it.remote}/{name}", b"x")
    directory(f"{it.remote}/directory")
    found = set(it.gfal.listdir(it.source)) - {".", ".."}
    equal(found, {*names, "directory"})
    with number(errno.ENOENT):
        it.gfal.listdir(it.source + "nosuch/")


@case
def readpp(it):
    """Reads a directory with the attributes of each entry."""
    write(f"{it.remote}/file", sample(321), 0o600)
    directory(f"{it.remote}/directory", 0o700)
    entries = {}
    handle = it.gfal.opendir(it.source)
    while True:
        entry, status = handle.readpp()
        if entry is None or not entry.d_name:
            break
        entries[entry.d_name] = (oct(status.st_mode), status.st_size)
    equal(entries["file"], (oct(stat.S_IFREG | 0o600), 321))
    equal(entries["directory"][0], oct(stat.S_IFDIR | 0o700))


@case
def mkdir(it):
    it.gfal.mkdir(it.destination + "new", 0o755)
    assert os.path.isdir(f"{it.remote}/new")
    with number(errno.EEXIST):
        it.gfal.mkdir(it.destination + "new", 0o755)
    with number(errno.ENOENT):
        it.gfal.mkdir(it.destination + "no/such", 0o755)
    directory(f"{it.remote}/closed", 0o555)
    with number(errno.EACCES):
        it.gfal.mkdir(it.destination + "closed/new", 0o755)


@case
def mkdir_rec(it):
    for _ in range(2):
        it.gfal.mkdir_rec(it.destination + "a/b c/d", 0o755)
    assert os.path.isdir(f"{it.remote}/a/b c/d")


@case
def rmdir(it):
    directory(f"{it.remote}/empty")
    directory(f"{it.remote}/full")
    write(f"{it.remote}/full/file", b"x")
    it.gfal.rmdir(it.destination + "empty")
    assert not os.path.exists(f"{it.remote}/empty")
    with number(errno.ENOENT):
        it.gfal.rmdir(it.destination + "empty")
    # gfal2 does not recognise the text of ENOTEMPTY.
    with raises(gfal2.GError):
        it.gfal.rmdir(it.destination + "full")
    with number(errno.ENOTDIR):
        it.gfal.rmdir(it.destination + "full/file")
    assert os.path.exists(f"{it.remote}/full/file")


@case
def unlink(it):
    write(f"{it.remote}/file", b"x")
    it.gfal.unlink(it.destination + "file")
    assert not os.path.exists(f"{it.remote}/file")
    with number(errno.ENOENT):
        it.gfal.unlink(it.destination + "file")
    directory(f"{it.remote}/closed")
    write(f"{it.remote}/closed/file", b"x")
    os.chmod(f"{it.remote}/closed", 0o555)
    with number(errno.EACCES):
        it.gfal.unlink(it.destination + "closed/file")


@case
def unlink_directory(it):
    directory(f"{it.remote}/directory")
    with number(errno.EISDIR):
        it.gfal.unlink(it.destination + "directory")


@case
def rename(it):
    content = write(f"{it.remote}/old", sample(1000))
    write(f"{it.remote}/other", b"x")
    it.gfal.rename(it.destination + "old", it.destination + "new name")
    equal(read(f"{it.remote}/new name"), content)
    it.gfal.rename(it.destination + "new name", it.destination + "other")
    equal(read(f"{it.remote}/other"), content)
    equal(os.listdir(it.remote), ["other"])


@case
def chmod(it):
    write(f"{it.remote}/file", b"x")
    for mode in (0o600, 0o777, 0o640):
        it.gfal.chmod(it.destination + "file", mode)
        equal(oct(os.stat(f"{it.remote}/file").st_mode & 0o7777), oct(mode))
    # A complete st_mode, as programs pass it from the result of stat.
    it.gfal.chmod(it.destination + "file", stat.S_IFREG | 0o604)
    equal(oct(os.stat(f"{it.remote}/file").st_mode & 0o7777), oct(0o604))
    with number(errno.ENOENT):
        it.gfal.chmod(it.destination + "nosuch", 0o600)


@case
def checksum(it):
    content = write(f"{it.remote}/file", sample(1_500_000))
    for algorithm, expected in [
        ("ADLER32", f"{zlib.adler32(content):08x}"),
        ("MD5", hashlib.md5(content).hexdigest()),
        ("SHA256", hashlib.sha256(content).hexdigest()),
    ]:
        equal(it.gfal.checksum(it.source + "file", algorithm), expected)
    equal(it.gfal.checksum(it.source + "file", "adler32"), f"{zlib.adler32(content):08x}")
    with number(errno.ENOENT):
        it.gfal.checksum(it.source + "nosuch", "ADLER32")


@case
def checksum_range(it):
    content = write(f"{it.remote}/file", sample(1_500_000))
    for offset, length in [(0, 10), (100, 262_144), (1_499_999, 1)]:
        expected = f"{zlib.adler32(content[offset:offset + length]):08x}"
        equal(it.gfal.checksum(it.source + "file", "ADLER32", offset, length), expected)


@case
def checksum_empty(it):
    write(f"{it.remote}/file", b"")
    equal(it.gfal.checksum(it.source + "file", "ADLER32"), "00000001")
    equal(it.gfal.checksum(it.source + "file", "MD5"), hashlib.md5(b"").hexdigest())


@case
def checksum_unknown(it):
    write(f"{it.remote}/file", b"x")
    with raises(gfal2.GError):
        it.gfal.checksum(it.source + "file", "NOSUCHSUM")


@case
def read_in_pieces(it):
    content = write(f"{it.remote}/file", sample(700_001))
    handle = it.gfal.open(it.source + "file", "r")
    found = b""
    while piece := handle.read_bytes(65_536):
        found += piece
    equal(found, content)


@case
def read_at_offset(it):
    """One read for each handle: with more reads gfal2 crashes more often."""
    content = write(f"{it.remote}/file", sample(700_001))
    for offset, length in [(500_000, 100), (0, 10), (262_143, 2), (700_000, 1)]:
        handle = it.gfal.open(it.source + "file", "r")
        equal(handle.pread_bytes(offset, length), content[offset:offset + length])


@case
def write_in_pieces(it):
    # The bindings can only write text.
    content = "".join(f"line {number}\n" for number in range(70_000))
    handle = it.gfal.open(it.destination + "file", "w")
    for offset in range(0, len(content), 65_536):
        handle.write(content[offset:offset + 65_536])
    del handle
    equal(read(f"{it.remote}/file"), content.encode())


@case
def open_errors(it):
    directory(f"{it.remote}/closed", 0o555)
    with number(errno.ENOENT):
        it.gfal.open(it.source + "nosuch", "r").read_bytes(10)
    # gfal2 does not always get the text of the server's reply here.
    with raises(gfal2.GError):
        it.gfal.open(it.destination + "closed/new", "w").write("x" * 10)
    assert not os.path.exists(f"{it.remote}/closed/new")


@case
def copy(it):
    content = write(f"{it.remote}/file", sample(5_000_001))
    it.filecopy(it.parameters(), it.source + "file", it.destination + "copy")
    equal(read(f"{it.remote}/copy"), content)


@case
def copy_as_fts(it):
    """With the parameters of FTS: checksums at both ends, overwriting, parallel streams and a time limit."""
    content = write(f"{it.remote}/file", sample(5_000_001))
    write(f"{it.remote}/copy", sample(6_000_000))
    parameters = it.parameters(
        overwrite=True, create_parent=True, nbstreams=4, timeout=60, tcp_buffersize=1_048_576
    )
    parameters.set_checksum(
        gfal2.checksum_mode.both, "ADLER32", f"{zlib.adler32(content):08x}"
    )
    events = []
    parameters.event_callback = lambda event: events.append(event.stage)
    parameters.monitor_callback = lambda *_: None
    it.filecopy(parameters, it.source + "file", it.destination + "copy")
    equal(read(f"{it.remote}/copy"), content)
    print("\n".join(str(event) for event in events))


@case
def copy_makes_parents(it):
    content = write(f"{it.remote}/file", sample(1000))
    it.filecopy(
        it.parameters(create_parent=True), it.source + "file", it.destination + "a/b/copy"
    )
    equal(read(f"{it.remote}/a/b/copy"), content)


@case
def copy_errors(it):
    content = write(f"{it.remote}/file", sample(1000))
    write(f"{it.remote}/other", b"other")
    directory(f"{it.remote}/closed", 0o555)
    write(f"{it.remote}/secret", b"x", 0)
    for source, destination, code in [
        ("nosuch", "copy", errno.ENOENT),
        ("file", "nosuch/copy", errno.ENOENT),
        ("file", "other", errno.EEXIST),
        ("file", "closed/copy", errno.EACCES),
        ("secret", "copy2", errno.EACCES),
    ]:
        with number(code):
            it.filecopy(it.parameters(), it.source + source, it.destination + destination)
    equal(read(f"{it.remote}/other"), b"other")
    equal(read(f"{it.remote}/file"), content)


@case
def copy_wrong_checksum(it):
    write(f"{it.remote}/file", sample(1000))
    parameters = it.parameters()
    parameters.set_checksum(gfal2.checksum_mode.both, "ADLER32", "12345678")
    with number(errno.EIO):
        it.filecopy(parameters, it.source + "file", it.destination + "copy")


@case
def copy_many(it):
    """Many copies over the same pair of sessions."""
    names = [f"file{number}" for number in range(30)]
    directory(f"{it.remote}/to")
    contents = {name: write(f"{it.remote}/{name}", sample(len(name) * 1000)) for name in names}
    for name in names:
        it.filecopy(it.parameters(), it.source + name, f"{it.destination}to/{name}")
    for name in names:
        equal(read(f"{it.remote}/to/{name}"), contents[name])


@case
def copy_to_local_and_back(it):
    content = write(f"{it.remote}/file", sample(3_000_001))
    it.filecopy(it.parameters(), it.source + "file", f"file://{it.local}/file")
    it.filecopy(it.parameters(), f"file://{it.local}/file", it.destination + "back")
    equal(read(f"{it.remote}/back"), content)


run(Context)
