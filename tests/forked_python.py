"""A `python` that starts in 0.1 s with PyTorch imported: its processes are forked from a server.

    with forked_python.running(folder) as python:
        subprocess.run([python, "train.py"])             # as sys.executable does

`folder` then has `python`, a program that takes the place of this interpreter, and a link to
`msprobe` beside it, which starts that `python` for its workers. An `import torch` takes 2 s of
processor time, and `torch._dynamo`, which the first optimizer imports, 1 s more.

The program hands its arguments, environment, folder, limits and open files to the server, which
forks. It ends as the forked process ends, passes signals on, and takes that process with it when
it is killed. It becomes the real interpreter where a fork would not do the same: other flags than
-c, -m and -u, no script, another environment of Python or of the libraries of threads and memory.
Tests of the death of a process, of its memory, of the start of Python and of import order take
`sys.executable`. The server only imports, so it has no threads of OpenMP or autograd.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import io
import marshal
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
from pathlib import Path

# Imported once. What is not installed, or not in this version, is left out.
MODULES = ("torch", "torch._dynamo", "torch.distributed", "torch.utils.checkpoint", "pytest")
SHARED = "MSPROBE_FORKED_PYTHON"  # environment: the program of a server that runs already
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)

# Read where a library starts: with other values of these, the forked process would not be the same.
STARTS = ("PYTHON", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "GLIBC_")
STARTS += ("TORCH", "PYTORCH_", "ATEN_", "LC_", "LANG")

PROGRAM = """#!{python} -IS
import marshal, os, resource, signal, socket, struct, sys

server, limits, words = {server!r}, {limits!r}, sys.argv[1:]


def is_same_start():
    while words and words[0] == "-u":
        words.pop(0)
    if not words or words[0] not in ("-c", "-m") and not os.path.isfile(words[0]):
        return False
    starts = {starts!r}
    mine = {{k: v for k, v in os.environb.items() if k.startswith(starts) and k not in {free!r}}}
    return mine == {environment!r}


def ask():
    asked = socket.socket(socket.AF_UNIX)
    asked.connect(server)
    job = {{
        "words": words,
        "environment": dict(os.environb),
        "folder": os.getcwdb(),
        "mask": os.umask(0),
        "limits": [resource.getrlimit(each) for each in limits],
        "interrupted": signal.getsignal(signal.SIGINT) != signal.SIG_IGN,
        "unbuffered": len(words) < len(sys.argv) - 1,
    }}
    text = marshal.dumps(job)
    socket.send_fds(asked, [struct.pack("I", len(text))], [0, 1, 2])
    asked.sendall(text)
    return asked


def all_of(asked, size):
    text = b""
    while len(text) < size:
        part = asked.recv(size - len(text))
        if not part:
            sys.exit("error: the server of tests/forked_python.py has ended")
        text += part
    return struct.unpack("i", text)[0]


if not is_same_start():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
asked = ask()
child = all_of(asked, 4)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, frame: os.kill(child, number))
status = all_of(asked, 4)
if os.WIFSIGNALED(status):
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
os._exit(os.WEXITSTATUS(status))
"""


def _write_program(folder: Path, environment: dict) -> Path:
    """The program `python`, with the environment of the server in it."""
    starts = tuple(os.fsencode(each) for each in STARTS)
    free = (b"PYTHONPATH", b"PYTEST_CURRENT_TEST")
    given = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
    same = {k: v for k, v in given.items() if k.startswith(starts) and k not in free}
    path = folder / "python"
    path.write_text(
        PROGRAM.format(
            python=sys.executable,
            server=str(folder / "server"),
            limits=LIMITS,
            starts=starts,
            free=free,
            environment=same,
        )
    )
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def running(folder: Path, environment=None):
    """Starts the server; gives the path of its `python`. `folder` is made, and removed again.

    Args:
        folder: with a short path, because the path of a socket has at most 107 bytes.
        environment: of the server; None: that of this process.
    """
    environment = dict(os.environ if environment is None else environment)
    folder.mkdir(parents=True)
    program = _write_program(folder, environment)
    msprobe = Path(environment.get("MSPROBE_BIN", Path(sys.executable).parent / "msprobe"))
    if msprobe.exists():
        # The program looks for Python beside itself: no symbolic link.
        try:
            os.link(msprobe, folder / "msprobe")
        except OSError:  # another disk
            shutil.copy2(msprobe, folder / "msprobe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "server"))
        listening.listen(64)
        server = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=[listening.fileno()],
        )
    try:
        yield program
    finally:
        server.stdin.close()  # its sign to end
        server.wait()
        shutil.rmtree(folder)


# --- the server ---


def _all_of(connection, size):
    text = bytearray()
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            raise EOFError
        text += part
    return bytes(text)


class _Server:
    """Forks a process for each connection, and answers with its id and, at its end, its status."""

    def __init__(self, listening):
        self._listening = listening
        self._poll = select.poll()
        self._poll.register(listening, select.POLLIN)
        self._poll.register(0, select.POLLIN)  # at its end: nobody needs this server any more
        self._connections = {}  # file number -> (connection, id of the process, file of its end)
        self._ends = {}  # file number that is readable when the process has ended -> connection

    def serve(self):
        """Returns in the server None at its end, and in each forked process its job."""
        while True:
            for number, _ in self._poll.poll():
                if number == 0:
                    return None
                if number == self._listening.fileno():
                    connection, _ = self._listening.accept()
                    with contextlib.suppress(EOFError, OSError):  # it was killed while it asked
                        if job := self._fork(connection):
                            return job
                elif number in self._ends:
                    self._ended(number)
                elif number in self._connections:
                    self._lost(number)

    def _fork(self, connection):
        size, files, _, _ = socket.recv_fds(connection, 4, 3)
        job = marshal.loads(_all_of(connection, *struct.unpack("I", size)))
        child = os.fork()
        if child == 0:
            job["files"] = files
            connection.close()
            self._listening.close()
            for other, _, end in self._connections.values():
                other.close()
                os.close(end)
            return job
        for file in files:
            os.close(file)
        end = os.pidfd_open(child)
        self._connections[connection.fileno()] = connection, child, end
        self._ends[end] = connection
        self._poll.register(end, select.POLLIN)
        self._poll.register(connection, select.POLLHUP)
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("i", child))
        return None

    def _lost(self, number):
        """The program that asked is gone: so is what it asked for."""
        connection, child, _ = self._connections[number]
        self._poll.unregister(connection)
        os.kill(child, signal.SIGKILL)  # not yet waited for: the id is its own

    def _ended(self, end):
        connection = self._ends.pop(end)
        _, child, _ = self._connections.pop(connection.fileno())
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError, KeyError):
            connection.sendall(struct.pack("i", status))
        with contextlib.suppress(KeyError):  # by _lost
            self._poll.unregister(connection)
        self._poll.unregister(end)
        os.close(end)
        connection.close()


# --- a forked process ---


def open_streams(unbuffered=False):
    """Standard input, output and errors of this process, anew."""

    def text(number, mode, **more):
        raw = io.FileIO(number, mode, closefd=False)
        if mode == "w" and unbuffered:
            return io.TextIOWrapper(raw, write_through=True, **more)
        buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        return io.TextIOWrapper(buffer, **more)

    sys.stdin = sys.__stdin__ = text(0, "r")
    sys.stdout = sys.__stdout__ = text(1, "w", line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = text(2, "w", line_buffering=True, errors="backslashreplace")


def _take(job):
    """Makes this process what the job asks for."""
    for number, file in enumerate(job["files"]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(job["folder"])
    os.umask(job["mask"])
    for which, limit in zip(LIMITS, job["limits"], strict=True):
        resource.setrlimit(which, limit)
    # The server may ignore it, as what a shell starts in the background does.
    interrupt = signal.default_int_handler if job["interrupted"] else signal.SIG_IGN
    signal.signal(signal.SIGINT, interrupt)
    os.environb.clear()
    os.environb.update(job["environment"])
    open_streams(job["unbuffered"] or bool(os.environ.get("PYTHONUNBUFFERED")))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # Python's own numbers are seeded anew by each fork


def _set_path(first, before):
    """sys.path of a new Python; `before`: the server's PYTHONPATH."""
    old = [os.path.abspath(each) for each in before.split(os.pathsep) if each]
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [first, *given, *(each for each in sys.path if each not in old)]
    sys.path_importer_cache.clear()
    if any(Path(each, "sitecustomize.py").exists() for each in given):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")


def _execute(words):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        runpy._run_module_as_main(words[1])
        return
    if words[0] == "-c":
        sys.argv, text, name = ["-c", *words[2:]], words[1], "<string>"
    else:
        sys.argv, name = list(words), os.path.abspath(words[0])
        main.__file__, main.__cached__ = name, None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", name)
        text = Path(name).read_bytes()
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def _own_frames(error):
    """The traceback without the frames of this file and of runpy."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    return trace


def be_the_program(words) -> int:
    """What `python words` does, up to its exit code."""
    code = 0
    try:
        _execute(words)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error.with_traceback(_own_frames(error)), error.__traceback__)
        code = 1
        if isinstance(error, KeyboardInterrupt):
            code = -signal.SIGINT
    threading._shutdown()  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def main():
    listening = socket.socket(fileno=int(sys.argv[1]))
    sys.path.pop(0)  # the folder of this file
    before = os.environ.get("PYTHONPATH", "")
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process copies none of these pages
    job = _Server(listening).serve()
    if job is None:
        return
    code = 1
    try:
        atexit._clear()
        _take(job)
        words = job["words"]
        sys.orig_argv = [sys.executable, *words]
        first = {"-c": "", "-m": os.getcwd()}.get(words[0])
        script = os.path.dirname(os.path.realpath(words[0]))
        _set_path(script if first is None else first, before)
        code = be_the_program(words)
    finally:
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
