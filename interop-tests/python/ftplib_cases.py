"""Python's ftplib, an ordinary FTP client.

Arguments: the case, host, port, the path of the case's directory on the control channel, the same
directory on this machine, a directory outside of the servers' tree.
"""

import contextlib
import ftplib
import hashlib
import io
import os
import re
import socket
import stat
import threading

from cases import case, directory, equal, raises, read, run, sample, write


class Context:
    def __init__(self, host, port, path, remote, local):
        self.host, self.port, self.path = host, int(port), path.rstrip("/")
        self.remote, self.local = remote, local

    @contextlib.contextmanager
    def session(self, encoding="utf-8", timeout=30):
        """A session in the case's directory; QUIT must succeed."""
        ftp = ftplib.FTP(encoding=encoding, timeout=timeout)
        ftp.connect(self.host, self.port)
        ftp.login()
        ftp.cwd(self.path)
        try:
            yield ftp
            assert ftp.quit().startswith("221")
        finally:
            ftp.close()


def refused(code, *words):
    """A reply of 5yz that has `code`, if that is not None, and one of `words`."""
    return raises(
        ftplib.error_perm,
        lambda error: str(error).startswith(code or "5")
        and (not words or any(word in str(error) for word in words)),
    )


NOT_FOUND = "No such file or directory"


def get(ftp, name, rest=None):
    content = io.BytesIO()
    equal(ftp.retrbinary(f"RETR {name}", content.write, rest=rest)[:3], "226")
    return content.getvalue()


def put(ftp, name, content, rest=None, command="STOR"):
    equal(ftp.storbinary(f"{command} {name}", io.BytesIO(content), rest=rest)[:3], "226")


@case
def login(it):
    ftp = ftplib.FTP(timeout=30)
    assert ftp.connect(it.host, it.port).startswith("220")
    assert ftp.login().startswith("230")
    equal(ftp.voidcmd("NOOP")[:3], "200")
    equal(ftp.sendcmd("SYST")[:3], "215")
    assert ftp.quit().startswith("221")


@case
def login_as_ftp(it):
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(it.host, it.port)
    assert ftp.login("ftp", "me@example.org").startswith("230")
    ftp.close()


@case
def login_of_an_unknown_user(it):
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(it.host, it.port)
    with refused("530"):
        ftp.login("joe", "secret")
    ftp.close()


@case
def commands_before_login(it):
    for command in [f"CWD {it.path}", f"DELE {it.path}/file", "PASV", f"MKD {it.path}/new", "MLST"]:
        ftp = ftplib.FTP(timeout=30)
        ftp.connect(it.host, it.port)
        with refused("530"):
            ftp.sendcmd(command)
        ftp.close()
    equal(os.listdir(it.remote), [])


@case
def quit_before_login(it):
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(it.host, it.port)
    assert ftp.quit().startswith("221")


@case
def working_directory(it):
    directory(f"{it.remote}/a")
    directory(f"{it.remote}/a/b c")
    write(f"{it.remote}/a/b c/file", b"x")
    with it.session() as ftp:
        equal(ftp.pwd(), it.path)
        ftp.cwd("a")
        ftp.cwd("b c")
        equal(ftp.pwd(), it.path + "/a/b c")
        equal(get(ftp, "file"), b"x")
        ftp.cwd("..")
        equal(ftp.pwd(), it.path + "/a")
        ftp.sendcmd("CDUP")
        equal(ftp.pwd(), it.path)
        ftp.cwd("a/./b c/../b c/")
        equal(ftp.pwd().rstrip("/"), it.path + "/a/b c")
        ftp.cwd(it.path + "/a")
        equal(ftp.pwd(), it.path + "/a")


@case
def working_directory_errors(it):
    write(f"{it.remote}/file", b"x")
    with it.session() as ftp:
        for name, word in [("nosuch", NOT_FOUND), ("file", "Not a directory")]:
            with refused("550", word):
                ftp.cwd(name)
            equal(ftp.pwd(), it.path)


@case
def mkd(it):
    with it.session() as ftp:
        equal(ftp.mkd("new"), it.path + "/new")
        assert os.path.isdir(f"{it.remote}/new")
        equal(ftp.mkd(it.path + "/new/below it/"), it.path + "/new/below it")
        assert os.path.isdir(f"{it.remote}/new/below it")
        with refused("550", "File exists"):
            ftp.mkd("new")
        with refused("550", NOT_FOUND):
            ftp.mkd("no/such")


@case
def mkd_with_quotes(it):
    with it.session() as ftp:
        made = ftp.mkd('a "quoted" name')
        # The real server has another text before the path, with which ftplib finds no path.
        assert made in ("", it.path + '/a "quoted" name'), made
        equal(os.listdir(it.remote), ['a "quoted" name'])


@case
def rmd(it):
    directory(f"{it.remote}/empty")
    directory(f"{it.remote}/full")
    write(f"{it.remote}/full/file", b"x")
    with it.session() as ftp:
        ftp.rmd("empty")
        with refused("550", NOT_FOUND):
            ftp.rmd("empty")
        with refused("550", "Not a directory"):
            ftp.rmd("full/file")
        with refused("550", "Directory not empty"):
            ftp.rmd("full")
    equal(os.listdir(it.remote), ["full"])


@case
def delete(it):
    write(f"{it.remote}/file", b"x")
    directory(f"{it.remote}/directory")
    with it.session() as ftp:
        ftp.delete("file")
        with refused("550", NOT_FOUND):
            ftp.delete("file")
        with refused("550", "Is a directory"):
            ftp.delete("directory")
    equal(os.listdir(it.remote), ["directory"])


@case
def rename(it):
    content = write(f"{it.remote}/old", sample(1000))
    directory(f"{it.remote}/directory")
    with it.session() as ftp:
        ftp.rename("old", "directory/new name")
        equal(read(f"{it.remote}/directory/new name"), content)
        ftp.rename("directory", "moved")
        with refused("550", NOT_FOUND):
            ftp.rename("moved/new name", "nosuch/file")
    equal(os.listdir(it.remote), ["moved"])


@case
def rename_missing(it):
    with it.session() as ftp, refused(None, NOT_FOUND):
        ftp.rename("nosuch", "new")


@case
def rename_out_of_order(it):
    with it.session() as ftp, refused(None):
        ftp.sendcmd("RNTO new")


@case
def size(it):
    write(f"{it.remote}/file", sample(1_234_567))
    directory(f"{it.remote}/directory")
    with open(f"{it.remote}/huge", "wb") as file:
        file.truncate(5 << 40)
    with it.session() as ftp:
        ftp.voidcmd("TYPE I")
        equal(ftp.size("file"), 1_234_567)
        equal(ftp.size("huge"), 5 << 40)
        with refused("550", NOT_FOUND):
            ftp.size("nosuch")


@case
def mdtm_and_mfmt(it):
    write(f"{it.remote}/file", b"x")
    os.utime(f"{it.remote}/file", (1_000_000_000, 1_000_000_000))
    with it.session() as ftp:
        equal(ftp.sendcmd("MDTM file"), "213 20010909014640")
        equal(ftp.sendcmd("MFMT 20051231235959 file"), "213 Modify=20051231235959; file")
        equal(int(os.stat(f"{it.remote}/file").st_mtime), 1_136_073_599)
        with refused("550", NOT_FOUND):
            ftp.sendcmd("MDTM nosuch")


@case
def nlst(it):
    names = ["one", "two words", "ünï", ".hidden"]
    for name in names:
        write(f"{it.remote}/{name}", b"x")
    directory(f"{it.remote}/directory")
    write(f"{it.remote}/directory/below", b"x")
    with it.session() as ftp:
        equal(set(ftp.nlst()), {*names, "directory"})
        equal({name.split("/")[-1] for name in ftp.nlst("directory")}, {"below"})
        with refused("550", NOT_FOUND):
            ftp.nlst("nosuch")


@case
def listing(it):
    """LIST, in the form of `ls -l` that clients parse."""
    write(f"{it.remote}/two words", sample(12_345), 0o640)
    directory(f"{it.remote}/directory", 0o750)
    lines = []
    with it.session() as ftp:
        ftp.dir(lines.append)
    found = {}
    for line in lines:
        match = re.fullmatch(
            r"([-dlpsbc][-rwxsStT]{9})\s+\d+\s+(\S+)\s+(\S+)\s+(\d+) (\w{3} [ \d]\d [ :\d]{5}) (.+)", line
        )
        assert match, f"not a line of ls -l: {line}"
        found[match[6]] = (match[1], int(match[4]))
    equal(found["two words"], ("-rw-r-----", 12_345))
    equal(found["directory"][0], "drwxr-x---")


@case
def listing_of_a_file_and_a_pattern(it):
    for name in ["one.dat", "two.dat", "three.txt"]:
        write(f"{it.remote}/{name}", b"x")
    with it.session() as ftp:
        for pattern, expected in [("one.dat", ["one.dat"]), ("*.dat", ["one.dat", "two.dat"])]:
            lines = []
            ftp.dir(pattern, lines.append)
            equal(sorted(line.split()[-1] for line in lines), expected)


@case
def mlsd(it):
    write(f"{it.remote}/two words", sample(12_345), 0o640)
    os.utime(f"{it.remote}/two words", (1_000_000_000, 1_000_000_000))
    write(f"{it.remote}/ünï; size=1", b"")
    directory(f"{it.remote}/directory", 0o750)
    with it.session() as ftp:
        entries = {name: facts for name, facts in ftp.mlsd()}
    equal(set(entries) - {".", ".."}, {"two words", "ünï; size=1", "directory"})
    facts = entries["two words"]
    equal(
        [facts[fact] for fact in ("type", "size", "modify", "unix.mode")],
        ["file", "12345", "20010909014640", "0640"],
    )
    equal(entries["directory"]["type"], "dir")


@case
def mlsd_of_chosen_facts(it):
    write(f"{it.remote}/file", sample(77))
    with it.session() as ftp:
        entries = {name: facts for name, facts in ftp.mlsd(facts=["type", "size"])}
        equal(entries["file"], {"type": "file", "size": "77"})


@case
def mlsd_errors(it):
    with it.session() as ftp:
        with refused("550", NOT_FOUND):
            list(ftp.mlsd("nosuch"))
        equal(ftp.voidcmd("NOOP")[:3], "200")


@case
def mlst(it):
    write(f"{it.remote}/two words", sample(77), 0o640)
    directory(f"{it.remote}/directory", 0o750)
    os.symlink("two words", f"{it.remote}/link")
    for name in ("two words", "directory"):
        os.utime(f"{it.remote}/{name}", (1_000_000_000, 1_000_000_000))
    with it.session() as ftp:
        for asked, size in [("two words", "77"), ("directory", None), ("link", "77")]:
            lines = ftp.sendcmd(f"MLST {asked}").splitlines()
            assert lines[0].startswith("250-") and lines[-1].startswith("250 "), lines
            listed, name = lines[1].lstrip().split("; ", 1)
            equal(name, asked)
            facts = dict(fact.lower().split("=") for fact in listed.split(";"))
            equal(facts["size"], size or facts["size"])
            equal(facts["modify"], "20010909014640")
            # Only facts that do not depend on the file system and the account are printed.
            for fact in ("type", "perm", "unix.mode", "unix.owner", "unix.uid", "unix.gid"):
                print(name, fact, facts[fact])
        with refused("550", NOT_FOUND):
            ftp.sendcmd("MLST nosuch")


@case
def stat_of_a_file(it):
    write(f"{it.remote}/file", sample(77), 0o600)
    with it.session() as ftp:
        reply = ftp.sendcmd("STAT file")
        assert reply.startswith("21") and "-rw-------" in reply and "77" in reply, reply
        assert ftp.sendcmd("STAT").startswith("21")


@case
def features(it):
    with it.session() as ftp:
        lines = ftp.sendcmd("FEAT").splitlines()
        assert lines[0].startswith("211-") and lines[-1].startswith("211 "), lines
        found = {line.split()[0] for line in lines[1:-1]}
        for feature in "UTF8 PARALLEL SIZE MLST ERET ESTO SPAS SPOR REST MDTM PASV MFMT".split():
            assert feature in found, f"no {feature} in {sorted(found)}"
        assert ftp.sendcmd("HELP").startswith("214")
        assert ftp.sendcmd("SITE HELP").startswith("214")


@case
def opts_utf8(it):
    with it.session() as ftp:
        equal(ftp.sendcmd("OPTS UTF8 ON")[:3], "200")


@case
def unknown_commands(it):
    with it.session() as ftp:
        for command in ["XXXX", "NOSUCHCOMMAND", "SITE NOSUCH", "OPTS NOSUCH", "TYPE X", "MODE Q"]:
            with refused(None):
                ftp.sendcmd(command)
        equal(ftp.voidcmd("NOOP")[:3], "200")


@case
def retrbinary(it):
    with it.session() as ftp:
        for length in (0, 1, 8191, 262_144, 262_145, 5_000_001):
            content = write(f"{it.remote}/file{length}", sample(length))
            equal(get(ftp, f"file{length}"), content)


@case
def retrbinary_with_rest(it):
    content = write(f"{it.remote}/file", sample(1_000_000))
    with it.session() as ftp:
        for rest in (1, 262_144, 999_999):
            equal(get(ftp, "file", rest=rest), content[rest:])
        equal(get(ftp, "file", rest=1_000_000), b"")
        equal(get(ftp, "file"), content)


@case
def retrbinary_errors(it):
    write(f"{it.remote}/secret", b"x", 0)
    content = write(f"{it.remote}/file", sample(1000))
    with it.session() as ftp:
        for name, word in [("nosuch", NOT_FOUND), ("secret", "Permission denied")]:
            with refused(None, word):
                get(ftp, name)
        equal(get(ftp, "file"), content)


@case
def storbinary(it):
    with it.session() as ftp:
        for length in (0, 1, 8191, 262_144, 262_145, 5_000_001):
            content = sample(length)
            put(ftp, f"file{length}", content)
            equal(read(f"{it.remote}/file{length}"), content)


@case
def storbinary_over_a_longer_file(it):
    write(f"{it.remote}/file", sample(10_000))
    with it.session() as ftp:
        put(ftp, "file", b"short")
    equal(read(f"{it.remote}/file"), b"short")


@case
def storbinary_with_rest(it):
    """An interrupted upload is completed."""
    content = sample(1_000_000)
    write(f"{it.remote}/file", content[:300_000])
    with it.session() as ftp:
        put(ftp, "file", content[300_000:], rest=300_000)
    equal(read(f"{it.remote}/file"), content)


@case
def append(it):
    write(f"{it.remote}/file", b"begun ")
    with it.session() as ftp:
        put(ftp, "file", b"and ended", command="APPE")
        put(ftp, "new", b"made", command="APPE")
    equal(read(f"{it.remote}/file"), b"begun and ended")
    equal(read(f"{it.remote}/new"), b"made")


@case
def lines(it):
    text = ["first", "", "third ü", "x" * 5000]
    with it.session() as ftp:
        ftp.storlines("STOR file", io.BytesIO("\n".join(text).encode() + b"\n"))
        found = []
        ftp.retrlines("RETR file", found.append)
        equal(found, text)


@case
def active_mode(it):
    content = write(f"{it.remote}/file", sample(1_000_000))
    with it.session() as ftp:
        ftp.set_pasv(False)
        equal(get(ftp, "file"), content)
        put(ftp, "copy", content)
        equal(read(f"{it.remote}/copy"), content)
        assert "file" in ftp.nlst()


@case
def extended_passive(it):
    """EPSV over IPv4, as browsers use it."""
    content = write(f"{it.remote}/file", sample(100_000))
    with it.session() as ftp:
        ftp.voidcmd("TYPE I")
        host, port = ftplib.parse229(ftp.sendcmd("EPSV"), ftp.sock.getpeername())
        with socket.create_connection((host, port), timeout=30) as data:
            assert ftp.sendcmd("RETR file").startswith("1")
            found = b""
            while piece := data.recv(65_536):
                found += piece
        equal(ftp.voidresp()[:3], "226")
        equal(found, content)


@case
def aborted_by_the_client(it):
    """The data connection is closed during the transfer; the session continues."""
    with open(f"{it.remote}/file", "wb") as file:
        file.truncate(200_000_000)
    with it.session() as ftp:
        ftp.voidcmd("TYPE I")
        data = ftp.transfercmd("RETR file")
        data.recv(1000)
        data.close()
        with raises(ftplib.Error, lambda error: str(error)[0] in "45"):
            ftp.voidresp()
        equal(ftp.voidcmd("NOOP")[:3], "200")
        equal(get(ftp, "file", rest=199_999_000), bytes(1000))


@case
def abort(it):
    with open(f"{it.remote}/file", "wb") as file:
        file.truncate(200_000_000)
    with it.session(timeout=10) as ftp:
        ftp.voidcmd("TYPE I")
        data = ftp.transfercmd("RETR file")
        data.recv(1000)
        assert ftp.abort()[:3] in ("226", "225", "426")
        data.close()
        with contextlib.suppress(ftplib.Error):
            ftp.voidresp()
        equal(get(ftp, "file", rest=199_999_000), bytes(1000))


@case
def abort_without_a_transfer(it):
    with it.session() as ftp:
        assert ftp.sendcmd("ABOR")[:3] in ("225", "226")


@case
def upload_interrupted(it):
    """Received data stays, and a restart completes the file."""
    content = sample(2_000_000)
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(it.host, it.port)
    ftp.login()
    ftp.cwd(it.path)
    ftp.voidcmd("TYPE I")
    data = ftp.transfercmd("STOR file")
    data.sendall(content[:1_000_000])
    # Both connections are closed at once, as after a crash of the client.
    ftp.sock.close()
    data.close()
    with it.session() as again:
        again.voidcmd("TYPE I")
        arrived = 0
        while not arrived:
            # The server may not have noticed the end yet.
            arrived = again.size("file")
        put(again, "file", content[arrived:], rest=arrived)
    equal(read(f"{it.remote}/file"), content)


@case
def chmod(it):
    write(f"{it.remote}/file", b"x")
    with it.session() as ftp:
        assert ftp.sendcmd("SITE CHMOD 640 file").startswith("2")
        equal(oct(stat.S_IMODE(os.stat(f"{it.remote}/file").st_mode)), "0o640")
        with refused("550", NOT_FOUND):
            ftp.sendcmd("SITE CHMOD 640 nosuch")


@case
def checksums(it):
    content = write(f"{it.remote}/two words", sample(1_000_000))
    with it.session() as ftp:
        equal(
            ftp.sendcmd("CKSM MD5 0 -1 two words"),
            "213 " + hashlib.md5(content).hexdigest(),
        )
        equal(
            ftp.sendcmd("CKSM SHA256 100 1000 two words"),
            "213 " + hashlib.sha256(content[100:1100]).hexdigest(),
        )
        with refused(None, NOT_FOUND):
            ftp.sendcmd("CKSM MD5 0 -1 nosuch")


@case
def names_on_the_wire(it):
    """Names that other clients cannot send."""
    names = ["ünï-漢字-🚀", "x" * 255, "ü" * 127, " lead and trail ", "-l", "a\tb"]
    directory(f"{it.remote}/names")
    with it.session() as ftp:
        ftp.cwd("names")
        for name in names:
            put(ftp, name, name.encode())
        equal(set(os.listdir(f"{it.remote}/names")), set(names))
        for name in names:
            equal(get(ftp, name), name.encode())
        equal(set(ftp.nlst()) - {".", ".."}, set(names))
        equal({name for name, _ in ftp.mlsd()} - {".", ".."}, set(names))
        for name in names:
            ftp.delete(name)
    equal(os.listdir(f"{it.remote}/names"), [])


@case
def names_that_are_not_utf8(it):
    with it.session(encoding="latin-1") as ftp:
        put(ftp, "caf\xe9", b"x")
        equal(os.listdir(it.remote.encode()), [b"caf\xe9"])
        assert "caf\xe9" in ftp.nlst()
        equal(get(ftp, "caf\xe9"), b"x")


@case
def names_that_are_too_long(it):
    """After a 4yz code clients would retry."""
    with it.session() as ftp:
        ftp.voidcmd("TYPE I")
        for command in ["MKD", "RMD", "DELE", "SIZE", "RNFR", "MLST"]:
            with refused("550", "File name too long"):
                ftp.sendcmd(f"{command} {'x' * 300}")


@case
def many_sessions(it):
    """Twenty concurrent sessions, each with its own file in both directions."""
    failures = []

    def work(number):
        try:
            content = sample(100_000 + number)
            with it.session() as ftp:
                for turn in range(5):
                    put(ftp, f"file{number}", content)
                    equal(get(ftp, f"file{number}"), content)
        except BaseException as error:
            failures.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failures, [])


@case
def many_transfers_in_one_session(it):
    with it.session() as ftp:
        for number in range(200):
            put(ftp, "file", b"x" * number)
            equal(get(ftp, "file"), b"x" * number)


@case
def ipv6(it):
    content = write(f"{it.remote}/file", sample(1_000_000))
    with it.session() as ftp:
        equal(ftp.af, socket.AF_INET6)
        for passive in (True, False):
            ftp.set_pasv(passive)
            equal(get(ftp, "file"), content)
            put(ftp, "copy", content)
            equal(read(f"{it.remote}/copy"), content)
            assert "file" in ftp.nlst()


@case
def read_only(it):
    """All commands that modify files are refused and have no effect."""
    content = write(f"{it.remote}/file", b"content")
    directory(f"{it.remote}/directory")
    with it.session() as ftp:
        for attempt in [
            lambda: put(ftp, "new", b"x"),
            lambda: put(ftp, "file", b"x"),
            lambda: put(ftp, "file", b"x", command="APPE"),
            lambda: put(ftp, "file", b"x", command="ESTO A 0"),
            lambda: ftp.delete("file"),
            lambda: ftp.mkd("new"),
            lambda: ftp.rmd("directory"),
            lambda: ftp.rename("file", "new"),
            lambda: ftp.sendcmd("SITE CHMOD 777 file"),
            lambda: ftp.sendcmd("SITE RDEL directory"),
            lambda: ftp.sendcmd("SITE SYMLINK file new"),
            lambda: ftp.sendcmd("MFMT 20010101000000 file"),
        ]:
            with raises(ftplib.Error, lambda error: str(error)[0] in "45"):
                attempt()
        equal(get(ftp, "file"), content)
    equal(sorted(os.listdir(it.remote)), ["directory", "file"])
    equal(stat.S_IMODE(os.stat(f"{it.remote}/file").st_mode), 0o644)
    equal(read(f"{it.remote}/file"), content)


run(Context)
