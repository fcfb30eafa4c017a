"""Every error, warning and log line that the sources make is Chinese, too."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from language.error_texts import NAME, NUMBER, error_texts, front_texts

ROOT = Path(__file__).resolve().parents[2]
CHINESE = re.compile("[\u3400-\u9fff]")
# What stays as it is in a Chinese sentence: quotations, code, commands, flags, words of our files.
AS_IT_IS = re.compile(
    r'"[^"]*"|\[[^\]]*\]|\'[^\']*\'|`[^`]*`|\{"[^{}]*\}|[\w.]+\([^()]*\)|(?<!\w)--?[A-Za-z][\w-]*'
    r"|\b(?:msprobe|python) [^;\uff1b]*|pip install ['\w=.\[\]-]+|import \w+|ray \w+"
    r"|\b(?:task|level) \w+|\b(?:steps?|ranks?|task|level|fail-on|kernel|dump)\b|\w*\.\w[\w.]*"
)
# No sentences: values, names and examples of files.
NO_SENTENCES = {
    "- ms_api: Functional.abs\n  pt_api: Torch.abs\n  ms_args: [0]\n  pt_args: [0]",
    r"TopLayer:\n  backbone: model\nBlock:\n  attn.qkv: attention.qkv",
    "api:\n  - Distributed.all_reduce\ncompare_index:\n  - NormRelativeErr",
    r"Distributed:\n  irecv:\n    input: [0, tensor]\n    output: all",
    "-api Functional.linear.3",
    "--lang zh",
    "--ray auto",
    "--propagation forward",
    "TIME-rank0-ID/actv_0-0.csv",
    "s/from/to/",
    "done: \n",  # of an unnamed step; NAME is in its other form
    "monitor",
    "random",
    f"parse: {NAME}",
}
SHOW = (
    "import msprobe, sys, json\nprint(json.dumps([msprobe.shown(t) for t in json.load(sys.stdin)]))"
)


def has_words(text):
    return re.search(r"\b[a-z]{3,}\b", AS_IT_IS.sub(" ", text.replace(NAME, "\u00b7")))


def is_english(shown):
    """Whether two English words stand side by side, or there is no Chinese at all."""
    rest = AS_IT_IS.sub(" ", shown.replace(NAME, "\u00b7"))
    return re.search(r"\b[a-z]{2,},? [a-z]{2,}\b", rest) or not CHINESE.search(shown)


def forms(text):
    """The text with names and numbers in its places: the sources do not say which."""
    parts = text.split(NAME)
    fillings = itertools.product((NAME, NUMBER), repeat=len(parts) - 1)
    for filling in itertools.islice(fillings, 32):
        yield "".join(a + b for a, b in zip(parts, [*filling, ""], strict=True))


def shown_in_chinese(texts, python):
    done = subprocess.run(
        [python, "-c", SHOW],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        env={"MSPROBE_LANG": "zh", "PATH": "/usr/bin:/bin"},
        check=True,
    )
    return json.loads(done.stdout)


def english_ones(found):
    """(place, text) of each text that is not Chinese in any form."""
    texts = {}
    for place, text in found:
        # "runs/a/config.json:3: " stands before a sentence.
        text = re.sub(rf'^{NAME}(?=[a-z"])', "", text).lstrip()
        if text not in NO_SENTENCES and has_words(text):
            texts.setdefault(text, place)
    asked = [(text, form) for text in texts for form in forms(text)]
    shown = shown_in_chinese([form for _, form in asked], sys.executable)
    chinese = {text for (text, _), said in zip(asked, shown, strict=True) if not is_english(said)}
    return [(place, text) for text, place in texts.items() if text not in chinese], len(texts)


def test_each_text_of_an_error_or_log_line_is_chinese():
    missing, total = english_ones(error_texts(ROOT))
    assert not missing, "add these to engine/base/translations/*.zh.po"
    assert total > 100, "the scan finds too little"


def test_each_text_of_the_fronts_is_chinese():
    missing, total = english_ones(front_texts(ROOT))
    assert not missing, "add these to engine/base/translations/*.zh.po"
    assert total > 10, "the scan finds too little"


def test_a_text_of_python_without_chinese_is_found(tmp_path):
    (tmp_path / "python").mkdir()
    code = f'def f(n):\n    raise ValueError(f"{UNKNOWN} {{n}}" if n else "an empty file")\n'
    (tmp_path / "python/made.py").write_text(code)
    missing, _ = english_ones(front_texts(tmp_path))
    assert missing == [("python/made.py:2", f"{UNKNOWN} {NAME}")]


UNKNOWN = "qwerty uiop asdf"
MADE = {
    "literal": f'return InvalidArgument("{UNKNOWN}");',
    "parts": f'return Status().Expected("{UNKNOWN[:6]} " + name + "{UNKNOWN[6:]} zxcv");',
    "choice": f'return Unsupported(many ? "an empty file" : "{UNKNOWN}").Hint("a file");',
    "format": f'return Status().Found(fmt::format("{UNKNOWN} {{}}", n));',
    "lambda": f"const auto refuse = [&](auto found) {{ return Status().Found(found); }};\n"
    f'return refuse("{UNKNOWN}");',
    "variable": f'const std::string why = "{UNKNOWN}";\nreturn Internal(why);',
    "log": f'Log(LogLevel::kInfo, "{UNKNOWN}");',
    "warning": f'config->warnings.push_back("{UNKNOWN}");',
    "field": f'result.reason = many ? "an empty file" : "{UNKNOWN}";',
    "line": f'out.Line("next", "{UNKNOWN}");',
    "told": f'out.Tell("{UNKNOWN} {{}}", n);',
}


@pytest.mark.parametrize("how", MADE)
def test_a_text_without_chinese_is_found(how, tmp_path):
    (tmp_path / "engine").mkdir()
    code = f"Status Make(const std::string& name, int n, bool many) {{\n{MADE[how]}\n}}\n"
    (tmp_path / "engine/made.cc").write_text(code)
    missing, _ = english_ones(error_texts(tmp_path))
    assert [place for place, _ in missing] == [f"engine/made.cc:{code.count(chr(10)) - 1}"]
    assert "qwerty" in missing[0][1]
