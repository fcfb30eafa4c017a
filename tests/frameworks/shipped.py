"""Runs the shipped files of frameworks: ``python shipped.py NAME SOURCES OUT LEVEL``.

``SOURCES`` is the folder of the wheel's sources (wheels.py), or ``sequence`` for a function of
sequences.py. The program does not know which tool is installed: ours or an older one.
"""

import ast
import importlib.machinery
import os
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frameworks.models import model
from frameworks.sequences import config_in, forward, train


def packages(sources, *names):
    """Makes packages whose own code does not run: their modules are found in the wheel."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(Path(sources, *name.split(".")))]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package


def methods(path, names, about, scope):
    """Functions of a class, cut out of its file: only statements that mention ``about``.

    A statement is kept if a name or an attribute in it contains one of the words of ``about``. Of a
    block about something else only such statements inside it are kept.
    """
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if not isinstance(node, ast.FunctionDef) or node.name not in names:
            continue
        node.body = cut(node.body, about)
        if not node.body or node.name in found:
            continue
        node.decorator_list, node.returns = [], None
        for argument in [*node.args.args, *node.args.kwonlyargs, node.args.kwarg]:
            if argument is not None:
                argument.annotation = None
        code = compile(ast.fix_missing_locations(ast.Module([node], [])), str(path), "exec")
        space = dict(scope)
        exec(code, space)
        found[node.name] = space[node.name]
    assert not set(names) - set(found), f"{path} has no {set(names) - set(found)}"
    return found


def cut(body, about):
    """The statements that mention ``about``."""
    kept = []
    for statement in body:
        if not mentions(statement, about):
            continue
        blocks = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
        header = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]
        if any(blocks) and not any(mentions(child, about) for child in header):
            for block in blocks:
                kept += cut(block, about)
        else:
            kept.append(statement)
    return kept


def mentions(node, about):
    words = []
    for child in ast.walk(node):
        words += [getattr(child, "attr", ""), getattr(child, "id", ""), getattr(child, "name", "")]
    return any(word and part in word for word in words for part in about)


def verl(sources, out, level):
    """verl's profiler, whole, with the decorator that its workers use."""
    packages(sources, "verl", "verl.utils", "verl.utils.profiler")
    omegaconf = types.ModuleType("omegaconf")  # which gives verl's classes defaults only
    omegaconf.MISSING, omegaconf.DictConfig = "???", dict
    sys.modules.setdefault("omegaconf", omegaconf)
    from verl.utils.profiler.config import PrecisionDebuggerToolConfig
    from verl.utils.profiler.precision_debugger_profile import PrecisionDebuggerProfiler

    tool = PrecisionDebuggerToolConfig(config_path=config_in(out, level), strict=True)
    profiler = PrecisionDebuggerProfiler(tool, rank=0, save_path=os.path.join(out, "profile"))

    class Worker:
        def __init__(self, net):
            self.actor_module = self.ref_module = net

        @profiler.annotate(role="ref_compute_log_prob")
        def ref(self, data):
            return forward(self.ref_module)

        @profiler.annotate(role="actor_compute_log_prob")
        def log_prob(self, data):
            return forward(self.actor_module)

        @profiler.annotate(role="actor_update")
        def update(self, data):
            train(self.actor_module)

        @profiler.annotate(role="rollout_generate")
        def generate(self, data):
            return forward(self.actor_module)

    actor, reference = Worker(model(0)), Worker(model(1))
    for step in (1, 2):
        data = {"global_steps": step}
        actor.generate(data)
        reference.ref(data)
        actor.log_prob(data)
        actor.update(data)


class Attributes:
    """An object with the attributes that are given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def vllm_ascend(sources, out, level):
    """vllm-ascend 0.13.0 and 0.18.0: what __init__ and execute_model do with the debugger."""
    path = Path(sources, "vllm_ascend/worker/model_runner_v1.py")
    about = ("debugger", "dump_cfg", "dbg_cfg", "dump_level")
    parts = methods(path, ("__init__", "execute_model"), about, {})
    runner = Attributes(
        ascend_config=Attributes(dump_config_path=config_in(out, level)),
        model_config=Attributes(enforce_eager=True),
        model=model(),
    )
    call(parts["__init__"], runner)
    for _ in range(2):
        execute(parts["execute_model"], runner, "debugger")


def execute(method, runner, name):
    """One step of a server: the model runs as soon as the debugger has been started."""
    debugger = getattr(runner, name)
    setattr(runner, name, Execution(debugger, runner.model))
    call(method, runner)
    setattr(runner, name, debugger)


class Execution:
    """The debugger in one step. Of several return paths of the method the first one is taken."""

    def __init__(self, debugger, net):
        self.debugger, self.net, self.ended = debugger, net, False

    def __getattr__(self, name):
        return getattr(self.debugger, name)

    def start(self, *args, **kwargs):
        self.debugger.start(*args, **kwargs)
        forward(self.net)

    def stop(self):
        if not self.ended:
            self.debugger.stop()

    def step(self, **kwargs):
        if not self.ended:
            self.debugger.step(**kwargs)
        self.ended = True


def call(function, runner):
    """Calls a method whose other arguments are not used by what is left of it."""
    count = function.__code__.co_argcount - 1 - len(function.__defaults__ or ())
    function(runner, *[None] * count)


def vllm_ascend_main(sources, out, level):
    """vllm-ascend 0.26.0rc1: __init__, and its two functions around a step; a dummy run first."""
    path = Path(sources, "vllm_ascend/worker/model_runner_v1.py")
    names = ("__init__", "_start_dump_data", "_finalize_dump_data")
    modes = Attributes(NONE=0)
    parts = methods(path, names, ("debugger", "dump_cfg"), {"CUDAGraphMode": modes})
    net = model()
    runner = Attributes(
        ascend_config=Attributes(dump_config_path=config_in(out, level)),
        compilation_config=Attributes(cudagraph_mode=0),
        model=net,
    )
    call(parts["__init__"], runner)
    forward(net)
    parts["_finalize_dump_data"](runner, dump=False)  # a dummy run, which is not started
    for _ in range(2):
        parts["_start_dump_data"](runner)
        forward(net)
        parts["_finalize_dump_data"](runner)


def sglang(sources, out, level):
    """sglang 0.5.23: create_msprobe_debugger, and what ModelRunner.forward does around a pass."""
    folder = Path(sources, "sglang/srt/model_executor")
    observability = Attributes(msprobe_dump_config=config_in(out, level))
    made = methods(
        folder / "model_runner_components/misc_utils.py",
        ("create_msprobe_debugger",),
        ("",),  # the whole function
        {"get_observability": lambda: observability, "logger": None},
    )
    run_sglang(folder, made["create_msprobe_debugger"])


def sglang_first(sources, out, level):
    """sglang 0.5.11, the first with msprobe: ModelRunner.init_msprobe and forward."""
    folder = Path(sources, "sglang/srt/model_executor")
    path = folder / "model_runner.py"
    made = methods(path, ("init_msprobe",), ("",), {"logger": None})
    arguments = Attributes(msprobe_dump_config=config_in(out, level), dp_size=1)
    runner = Attributes(server_args=arguments)

    def construct():
        made["init_msprobe"](runner)
        return runner.msprobe_debugger

    run_sglang(folder, construct, server_args=arguments, dp_size=1)


def run_sglang(folder, construct, **attributes):
    scope = {"get_parallel": lambda: Attributes(dp_size=1)}
    about = ("msprobe_debugger", "rank_id")
    parts = methods(folder / "model_runner.py", ("forward",), about, scope)
    runner = Attributes(msprobe_debugger=construct(), model=model(), gpu_id=0, **attributes)
    for _ in range(2):
        execute(parts["forward"], runner, "msprobe_debugger")


SHIPPED = {
    "verl": verl,
    "vllm_ascend_first": vllm_ascend,
    "vllm_ascend": vllm_ascend,
    "vllm_ascend_main": vllm_ascend_main,
    "sglang_first": sglang_first,
    "sglang": sglang,
}

if __name__ == "__main__":
    name, sources, out, level = sys.argv[1:]
    if sources == "sequence":
        from frameworks import sequences

        getattr(sequences, name)(out, level)
    else:
        SHIPPED[name](sources, out, level)
