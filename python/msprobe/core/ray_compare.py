"""`msprobe compare --ray`: ranks compared by the nodes of a cluster of Ray.

python -m msprobe.core.ray_compare ADDRESS

msprobe starts it and decides what runs where. Each line in is JSON, and so is each line out. The
first line names the two runs; the answer says what each node has of them. Each further line is a
command line for one node, or names the files of a dump; the answer is in a file.
"""

import json
import os
import sys
import threading

from msprobe.core import ray_cluster

_LOOK_SECONDS = 120  # until a node that does not answer is left out


def _look(runs, version):
    """What the node has of both runs, and what is wrong there: "" if nothing is."""
    try:
        import msprobe
        from msprobe import _engine
    except ImportError as error:
        return {"wrong": f"{error}; type there: pip install mindstudio-probe"}
    if msprobe.__version__ != version:
        found = msprobe.__version__
        return {"wrong": f"expected mindstudio-probe {version}, found {found}"}
    is_there = os.path.isdir(runs["directory"])
    if is_there:
        os.chdir(runs["directory"])
    has = {"wrong": ""}
    for side in ("target", "golden"):
        path = runs[side] if is_there or os.path.isabs(runs[side]) else ""
        try:
            has[side] = json.loads(_engine.dumps_below(path))
        except _engine.MsprobeError as error:
            return {"wrong": str(error)}
    return has


def _compare(task):
    """Runs msprobe on the node: a line of JSON, and the bytes of the files that were written."""
    import subprocess
    import tempfile

    program = (
        "import ctypes, signal, sys\n"
        "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # it ends with the worker of Ray
        "from msprobe import _engine\n"
        "try: sys.exit(_engine.run(sys.argv[1:]))\n"
        "except _engine.MsprobeError as error: sys.exit(f'error: {error}')\n"
    )
    directory = task["directory"] if os.path.isdir(task["directory"]) else "/"
    with tempfile.TemporaryDirectory(prefix="msprobe_compare_") as folder:
        done = subprocess.run(
            [sys.executable, "-c", program, *task["words"], "-o", folder],
            cwd=directory,
            env=os.environ | {"MSPROBE_LANG": "en"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        paths = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        size = sum(map(os.path.getsize, paths))
        contents = []
        if size <= task["most_bytes"]:
            for path in paths:
                with open(path, "rb") as file:
                    contents.append(file.read())
        names = [os.path.relpath(path, folder) for path in paths]
        answer = {
            "code": done.returncode,
            "said": done.stderr.decode(errors="replace")[:4000],
            "folder": folder,
            "bytes": size,
            "files": [[n, len(c)] for n, c in zip(names, contents)],  # noqa: B905
        }
    return b"".join([json.dumps(answer).encode(), b"\n", *contents])


def _copy(task):
    """Those of some files that the node has: a line of JSON, and their bytes. The first is a dump:
    whether elements of tensors lie beside it is said, and they are not sent."""
    paths = [os.path.join(task["directory"], path) for path in task["paths"]]
    there = [i for i, path in enumerate(paths) if os.path.isfile(path)]
    size = sum(os.path.getsize(paths[i]) for i in there)
    contents = []
    if size <= task["most_bytes"]:
        for i in there:
            with open(paths[i], "rb") as file:
                contents.append(file.read())
    elements = os.path.join(os.path.dirname(paths[0]), "dump_tensor_data")
    answer = {
        "code": 0,
        "said": "",
        "bytes": size,
        "files": [[str(i), len(c)] for i, c in zip(there, contents)],  # noqa: B905
        "elements": os.path.isdir(elements) and not os.path.islink(elements),
    }
    return b"".join([json.dumps(answer).encode(), b"\n", *contents])


class Nodes:
    """The nodes of the cluster, and where their answers go."""

    def __init__(self, ray, file):
        self.ray, self.file = ray, file
        self.writes = threading.Lock()
        self.alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}

    def say(self, answer):
        with self.writes:
            print(json.dumps(answer), file=self.file, flush=True)

    def start(self, function, node, cpus, *arguments):
        options = {"num_cpus": cpus, "max_retries": 0}
        options |= ray_cluster.on_node(self.ray, node) | ray_cluster.environment()
        return self.ray.remote(function).options(**options).remote(*arguments)

    def look(self, runs):
        import msprobe

        looks = {n: self.start(_look, n, 0, runs, msprobe.__version__) for n in self.alive}
        self.ray.wait(list(looks.values()), num_returns=len(looks), timeout=_LOOK_SECONDS)
        nodes = []
        for node, look in looks.items():
            try:
                has = self.ray.get(look, timeout=0)
            except Exception as error:
                has = {"wrong": _first_line(error)}
            nodes.append({"id": node, "name": self.alive[node]["NodeManagerHostname"]} | has)
        self.say({"nodes": nodes})

    def compare(self, task):
        """In a thread: says how the task has ended."""
        node = task["node"]
        cpus = min(1, self.alive[node]["Resources"].get("CPU", 0))
        answer = {"task": task["task"], "state": "answered", "said": ""}
        try:
            function = _compare if task["words"] else _copy
            packed = self.ray.get(self.start(function, node, cpus, task))
            with open(task["file"], "wb") as file:
                file.write(packed)
        except Exception as error:
            is_there = ray_cluster.answers(self.ray, node)
            answer["state"] = "failed" if is_there else "lost"
            answer["said"] = _first_line(error)
        self.say(answer)


def _first_line(error):
    cause = getattr(error, "cause", None) or error  # of an exception on the node: that one
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:300]


def main():
    file = ray_cluster.answers_of_this_process()
    try:
        nodes = Nodes(ray_cluster.connect(sys.argv[1]), file)
    except ray_cluster.Refused as error:
        print(error, file=file, flush=True)
        sys.exit(2)
    nodes.look(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        threading.Thread(target=nodes.compare, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
