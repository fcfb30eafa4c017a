"""The cases of this folder: which program is trained in which layout, with which planted bug."""

import ast
import dataclasses
import hashlib
import re
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TABLES = ("LAYOUTS", "VARIANTS", "BUGS", "PAIRS", "NEEDS", "ROUNDING")
LATER = {"channel_conv", "gan_ddp", "gqa_dtensor", "hsdp_clip", "lora_fsdp", "lstm_dp"}
LATER |= {"moe_top2", "recsys", "ring_attention", "sync_norm", "unet_pipe"}
ROUNDING = 1e-8  # largest relative difference of a right layout from the golden in float64


@dataclasses.dataclass
class Case:
    """One recording. A right layout has no bug; the golden's layout is "one"."""

    program: str  # gpt_tp, or gpt_tp-bf16 for a variant
    layout: str
    processes: int
    bug: str = ""
    rank: int | None = None  # the rank that is wrong, if it is one rank
    near: tuple = ()  # names of the wrong call or of its neighbours, regular expressions
    within: str = ""  # the module in which the lines are wrong; a regular expression
    against: str = "one"  # the golden's layout
    needs: tuple = ()  # packages without which the program does not run
    rounding: float = ROUNDING  # a program may declare another one

    @property
    def name(self):
        return ".".join(part for part in (self.program, self.layout, self.bug) if part)

    @property
    def golden(self):
        return f"{self.program}.{self.against}"

    @property
    def script(self):
        return PROGRAMS / f"{self.program.split('-')[0]}.py"

    @property
    def variant(self):
        return self.program.partition("-")[2]

    @property
    def marked(self):
        """The lines of the script that a comment marks as the place of the bug."""
        lines = enumerate(self.script.read_text().splitlines(), 1)
        found = ((at, re.search(r"# bug: (.*)", line)) for at, line in lines)
        return [at for at, hit in found if hit and self.bug in re.split(r", *", hit[1])]

    @property
    def looked_at(self):
        """Programs that were written later: they were looked at after their first comparison."""
        return self.script.stem in LATER

    @property
    def program_held_out(self):
        return not self.looked_at and choice(self.program.split("-")[0]) % 3 == 0

    @property
    def held_out(self):
        """A third of the programs, and of the bugs of the others a tenth, by a fixed hash."""
        some = bool(self.bug) and choice(self.name) % 10 == 0
        return self.program_held_out or (some and not self.looked_at)


def choice(name):
    return hashlib.sha256(f"layouts12/{name}".encode()).digest()[0]


def tables(script):
    """The literals of a program that describe its cases."""
    found = {}
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in TABLES:
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def cases_of(script):
    known = tables(script)
    if "LAYOUTS" not in known:
        return
    layouts = known["LAYOUTS"]
    all_have = {
        "needs": tuple(known.get("NEEDS", ())),
        "rounding": known.get("ROUNDING", ROUNDING),
    }
    for variant in known.get("VARIANTS", ("",)):
        program = script.stem + (f"-{variant}" if variant else "")
        for layout, processes in layouts.items():
            yield Case(program, layout, processes, **all_have)
        for target, golden in known.get("PAIRS", ()):
            yield Case(program, target, layouts[target], against=golden, **all_have)
    for name, bug in known["BUGS"].items():
        variant = bug.get("variant", "")
        yield Case(
            script.stem + (f"-{variant}" if variant else ""),
            bug["layout"],
            layouts[bug["layout"]],
            name,
            bug.get("rank"),
            tuple(bug["near"]),
            bug.get("within", ""),
            bug.get("against", "one"),
            **all_have,
        )


def cases():
    """All of them; those of layout "one" are goldens only."""
    return [case for script in sorted(PROGRAMS.glob("*.py")) for case in cases_of(script)]


if __name__ == "__main__":  # held_out.txt
    print("\n".join(dict.fromkeys(case.name for case in cases() if case.held_out)))
