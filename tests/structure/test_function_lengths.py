"""tools/function_lengths.py, which `make lint` uses, finds all functions and their ends."""

from textwrap import dedent

import pytest
from function_lengths import cpp_functions, python_functions

CPP = {
    "a function": ("int Add(int a,\n        int b) {\n  return a + b;\n}\n", [("Add", 1, 4)]),
    "a method in a class": (
        "namespace a {\nclass B {\n public:\n  int size() const { return 1; }\n};\n}\n",
        [("size", 4, 1)],
    ),
    "initializers in braces": (
        "A::A(int b)\n    : b_{b}, c_(b) {\n  Run();\n}\n",
        [("A::A", 1, 4)],
    ),
    "braces of a default argument": ("void F(Options o = {}) {\n  G();\n}\n", [("F", 1, 3)]),
    "a test": ("TEST_F(Suite, Name) {\n  if (x) {\n  }\n}\n", [("Suite.Name", 1, 4)]),
    "operators": (
        "A& operator=(A&& b) {\n  return *this;\n}\nbool operator()(int a) const {\n}\n",
        [("operator=", 1, 3), ("operator()", 4, 2)],
    ),
    "no function": ("constexpr int kTable[] = {1, F(2)};\nstruct A {\n  int b = 0;\n};\n", []),
    "a class of a template": ("template <class T>\nclass A {\n  T b{};\n};\n", []),
    "braces in literals and comments": (
        "void F() {\n  // }\n  Put('}', \"}\", R\"(}{)\", 1'000'000);\n}\n",
        [("F", 1, 4)],
    ),
    "preprocessor": ("#define A(x) { x\nvoid F() {\n#if B\n#endif\n}\n", [("F", 2, 4)]),
}


@pytest.mark.parametrize("text, wanted", CPP.values(), ids=CPP)
def test_functions_of_cpp(text, wanted):
    assert [(f.name, f.line, f.length) for f in cpp_functions(text)] == wanted


def test_functions_of_python():
    text = """
        class A:
            @property
            def b(self):
                def inner():
                    return 1

                return inner
    """
    found = [(f.name, f.line, f.length) for f in python_functions(dedent(text))]
    assert found == [("b", 4, 5), ("inner", 5, 2)]
