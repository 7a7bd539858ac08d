"""Runs one case of a file of cases: FILE CASE ARGUMENT...

A case is a function with the decorator `case`. An exception is a failure; its output must be the
same with every server. `FILE --list` prints the names of the cases.
"""

import contextlib
import hashlib
import os
import random
import sys

CASES = {}


def case(function):
    """Makes `function` a case that is called by its name."""
    CASES[function.__name__] = function
    return function


def run(make_context):
    """Runs the case of the command line with the context that `make_context` makes from its arguments."""
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        return
    name, *arguments = sys.argv[1:]
    CASES[name](make_context(*arguments))


def sample(size):
    """`size` pseudo-random bytes, always the same."""
    return random.Random(size).randbytes(size)


def write(path, content, mode=0o644):
    """Makes a file of the account that the servers act as."""
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
    chown_to_nobody(path)
    return content


def directory(path, mode=0o755):
    """Makes a directory of the account that the servers act as."""
    os.mkdir(path)
    os.chmod(path, mode)
    chown_to_nobody(path)


def chown_to_nobody(path):
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534, follow_symlinks=False)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def equal(found, expected):
    """Fails unless both are equal; long ones are shown by their length and hash."""
    if found != expected:
        raise AssertionError(f"{shown(found)} instead of {shown(expected)}")


def shown(value):
    if isinstance(value, bytes) and len(value) > 200:
        return f"{len(value)} bytes with MD5 {hashlib.md5(value).hexdigest()}"
    return repr(value)


@contextlib.contextmanager
def raises(kind, test=lambda error: True):
    """Fails unless the block raises `kind` and the error passes `test`."""
    try:
        yield
    except kind as error:
        assert test(error), f"another {kind.__name__}: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")
