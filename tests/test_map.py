"""The map in CONTRIBUTING.md and the threat model in SECURITY.md point to files that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([^|`]+\?) \| `([^|`]+)` \| `([\w.]+)` \|$", re.MULTILINE)
ANSWERS = {
    question: answer for question, *answer in ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
}

QUESTIONS = [
    "How does a client train?",
    "How does a malicious client train?",
    "How is a round judged?",
    "Where are a run's files written and read?",
    "What builds the paper's tables?",
    "What plugs into Flower?",
    "What does a script call to run an experiment?",
    "Where is a data set added?",
]


def find_symbols(tree: ast.Module | ast.ClassDef, prefix: str = "") -> set[str]:
    """Return the names that a module or class defines, methods as `Class.method`."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(f"{prefix}{node.name}")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {f"{prefix}{target.id}" for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found |= find_symbols(node, f"{prefix}{node.name}.")
    return found


def test_the_map_answers_what_a_newcomer_asks() -> None:
    assert list(ANSWERS) == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_a_file_that_defines_the_symbol(question: str) -> None:
    path, symbol = ANSWERS[question]
    assert symbol in find_symbols(ast.parse((ROOT / path).read_text(encoding="utf-8")))


def test_an_imported_name_is_not_an_answer() -> None:
    symbols = find_symbols(ast.parse("from a import b\nc: int = 1\nd = 2\nclass E:\n    def f(self): ...\n"))
    assert symbols == {"c", "d", "E", "E.f"}


def test_the_tests_that_the_threat_model_names_exist() -> None:
    named = set(re.findall(r"`([\w*/]*test_[\w*]+\.py)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8")))
    assert len(named) > 20
    assert not [name for name in named if not list((ROOT / "tests").glob(name))]
