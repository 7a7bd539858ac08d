"""Python's ftplib over TLS (RFC 4217).

Arguments: the case, host, port, the certificate of the authority, user, password, the path of the case's
directory on the control channel, the same directory on this machine.
"""

import contextlib
import ftplib
import io
import os
import ssl

from cases import case, equal, raises, read, run, sample, write


class Context:
    def __init__(self, host, port, authority, user, password, path, remote):
        self.host, self.port, self.authority = host, int(port), authority
        self.user, self.password = user, password
        self.path, self.remote = path.rstrip("/"), remote

    def tls(self, version=None):
        tls = ssl.create_default_context(cafile=self.authority)
        if version:
            tls.minimum_version = tls.maximum_version = version
        return tls

    @contextlib.contextmanager
    def session(self, version=None, protected=True, user=None, password=None):
        """A session in the case's directory; QUIT must succeed."""
        ftp = ftplib.FTP_TLS(timeout=30, context=self.tls(version))
        ftp.connect(self.host, self.port)
        ftp.login(user or self.user, password or self.password)
        # RFC 2228 3: no PROT without PBSZ; ftplib sends it with PROT P alone.
        equal(ftp.voidcmd("PBSZ 0")[:3], "200")
        equal((ftp.prot_p if protected else ftp.prot_c)()[:3], "200")
        ftp.cwd(self.path)
        try:
            yield ftp
            assert ftp.quit().startswith("221")
        finally:
            ftp.close()


def there_and_back(ftp, content):
    equal(ftp.storbinary("STOR copy", io.BytesIO(content))[:3], "226")
    received = io.BytesIO()
    equal(ftp.retrbinary("RETR copy", received.write)[:3], "226")
    equal(received.getvalue(), content)


def every_size(ftp, context):
    for size in [0, 1, 16_384, 16_385, 3_000_001]:
        there_and_back(ftp, sample(size))
        equal(read(os.path.join(context.remote, "copy")), sample(size))


@case
def private_data(context):
    for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        with context.session(version) as ftp:
            every_size(ftp, context)


@case
def clear_data(context):
    with context.session(protected=False) as ftp:
        every_size(ftp, context)


@case
def changing_protection(context):
    with context.session() as ftp:
        for protect in [ftp.prot_c, ftp.prot_p, ftp.prot_c, ftp.prot_p]:
            protect()
            there_and_back(ftp, sample(100_000))


@case
def active_mode(context):
    with context.session() as ftp:
        ftp.set_pasv(False)
        every_size(ftp, context)


@case
def listings(context):
    write(os.path.join(context.remote, "one"), b"1")
    write(os.path.join(context.remote, "two words"), b"22")
    with context.session() as ftp:
        equal(sorted(ftp.nlst()), ["one", "two words"])
        facts = {name: facts["size"] for name, facts in ftp.mlsd() if facts["type"] == "file"}
        equal(facts, {"one": "1", "two words": "2"})
        lines = []
        ftp.retrlines("LIST", lines.append)
        assert any(line.endswith("two words") for line in lines), lines


@case
def anonymous_users(context):
    with context.session(user="anonymous", password="me@") as ftp:
        there_and_back(ftp, sample(1000))


def refused(*codes):
    """A reply of 5yz with one of `codes`."""
    return raises(ftplib.error_perm, lambda error: str(error)[:3] in codes)


@case
def wrong_password(context):
    with refused("530"), context.session(password="wrong"):
        pass


@case
def the_channel_stays_encrypted(context):
    with context.session() as ftp:
        with refused("500", "502", "533", "534"):
            ftp.ccc()
        there_and_back(ftp, sample(1000))


@case
def twice(context):
    """A second AUTH is refused."""
    with context.session() as ftp:
        with refused("503", "534"):
            ftp.voidcmd("AUTH TLS")
        there_and_back(ftp, sample(1000))


if __name__ == "__main__":
    run(Context)
