"""A GSI login with Python's OpenSSL, which presents any certificate.

Arguments: the case, host, port, a file with certificate, key and chain, the highest version of
TLS (1.2 or 1.3). It prints whether the login succeeds, and if not, the step and the
reply.
"""

import base64
import socket
import ssl

from cases import case, run

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Context:
    def __init__(self, host, port, credential, version):
        self.host, self.port, self.credential = host, int(port), credential
        self.version = VERSIONS[version]


class Refused(Exception):
    """The server refused."""


class Control:
    """A control channel, initially in clear text."""

    def __init__(self, context):
        self.file = socket.create_connection((context.host, context.port), timeout=20).makefile("rwb")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # This tests the server's verification; other tests verify the server's certificate.
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.maximum_version = context.version
        tls.load_cert_chain(context.credential)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.wrap_bio(self.incoming, self.outgoing, server_hostname=context.host)
        self.is_wrapped = False

    def reply(self):
        """The next reply, as its code and its lines without codes."""
        lines = []
        while True:
            line = self.file.readline()
            if not line:
                raise Refused("closed")
            line = line.rstrip(b"\r\n")
            if line[:1] == b"6" and self.is_wrapped:
                self.incoming.write(base64.b64decode(line[4:]))
                line = self.tls.read(65536).rstrip(b"\r\n")
            lines.append(line[4:])
            if line[:3].isdigit() and line[3:4] == b" ":
                return int(line[:3]), b"\n".join(lines)

    def command(self, line):
        if self.is_wrapped:
            self.tls.write(line + b"\r\n")
            line = b"ENC " + base64.b64encode(self.outgoing.read())
        self.file.write(line + b"\r\n")
        self.file.flush()
        return self.reply()

    def must(self, line, *codes):
        """Sends a command; the reply must have one of `codes`."""
        code, text = self.command(line)
        if code not in codes:
            raise Refused(f"{code} {text.decode()}")
        return code, text

    def token(self, code, text):
        """Processes the token of a reply; true if another one must be sent."""
        if code == 335:
            self.incoming.write(base64.b64decode(text.removeprefix(b"ADAT=")))
        return code == 335

    def send_token(self):
        return self.token(*self.must(b"ADAT " + base64.b64encode(self.outgoing.read()), 335, 235))

    def authenticate(self):
        """Does the handshake without delegation."""
        self.must(b"AUTH GSSAPI", 334)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.send_token()
        if self.outgoing.pending:
            # In TLS 1.3 the client finishes first, and the server sends one byte.
            self.send_token()
            self.tls.read(1)
        self.tls.write(b"0")
        if self.send_token():
            raise Refused("a token too many")
        self.is_wrapped = True


@case
def login(context):
    control = Control(context)
    control.reply()
    try:
        control.authenticate()
    except (Refused, ssl.SSLError) as error:
        print(f"refused in the handshake: {error}")
        return
    try:
        control.must(b"USER :globus-mapping:", 331)
        control.must(b"PASS dummy", 230)
    except Refused as error:
        print(f"refused by name: {error}")
        return
    print("logged in")


if __name__ == "__main__":
    run(Context)
