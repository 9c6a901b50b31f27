"""Check that the tests of the core files notice a changed operator, constant, condition, call or result.

    python scripts/mutants.py [--all] [--only guard/reply.py] [--sample 500] [--seed 0]

A mutant is a core file with one small change. In a copy of the checkout, the script runs that file's tests on each
mutant of a sample, and lists those that no test caught. It fails if fewer than nine in ten are caught, or if
`equivalent_mutants.toml` names a mutant that does not exist.
"""

import argparse
import ast
import gc
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import cache_from_source
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "src/snowball"
MIN_CAUGHT = 0.9
MAX_MEMORY_BYTES = 8 << 30

COPIED = ("src", "tests", "benchmarks", "scripts", "docs", "pyproject.toml")
"""What the tests need of a checkout."""

PRELOADED = ("hypothesis.strategies", "pydantic", "pytest", "safetensors.torch", "sklearn.cluster", "torch._dynamo")
"""Libraries that are imported once, before a process is forked for each mutant."""

CORE: Mapping[str, tuple[str, ...]] = {
    "defenses/snowball/bottom_up.py": ("tests/defenses/snowball/test_bottom_up.py", "tests/golden/test_rounds.py"),
    "defenses/snowball/kmeans.py": (
        "tests/defenses/snowball/test_kmeans.py",
        "tests/defenses/snowball/test_bottom_up.py",
    ),
    "defenses/snowball/lloyd_step.py": (
        "tests/defenses/snowball/test_lloyd_step.py",
        "tests/defenses/snowball/test_kmeans.py",
    ),
    "defenses/snowball/moving_sums.py": (
        "tests/defenses/snowball/test_moving_sums.py",
        "tests/defenses/snowball/test_kmeans.py",
    ),
    "defenses/snowball/references.py": ("tests/defenses/snowball/test_references.py",),
    "defenses/snowball/gap.py": ("tests/defenses/snowball/test_gap.py",),
    "defenses/snowball/layers.py": ("tests/defenses/snowball/test_layers.py",),
    "defenses/snowball/voting.py": ("tests/defenses/snowball/test_voting.py",),
    "defenses/snowball/top_down.py": ("tests/defenses/snowball/test_top_down.py",),
    "defenses/snowball/judges.py": (
        "tests/defenses/snowball/test_judges.py",
        "tests/defenses/snowball/test_top_down.py",
    ),
    "defenses/ops.py": ("tests/defenses/test_ops.py", "tests/defenses/test_ties.py", "tests/defenses/test_clipping.py"),
    "defenses/history.py": ("tests/defenses/test_history_parts.py", "tests/defenses/test_history.py"),
    "guard/reply.py": ("tests/guard/test_reply.py", "tests/guard/test_validation.py"),
    "guard/validation.py": ("tests/guard/test_validation.py", "tests/guard/test_reply.py"),
    "guard/norms.py": ("tests/guard/test_norms.py",),
    "guard/turnout.py": ("tests/guard/test_turnout.py",),
    "guard/admission.py": ("tests/guard/test_names.py", "tests/guard/test_decisions.py"),
    "serialization.py": (
        "tests/records/test_serialization.py",
        "tests/records/test_sealed.py",
        "tests/records/test_checkpoint.py",
    ),
    "records/drafts.py": ("tests/records/test_drafts.py",),
    "records/files.py": ("tests/records/test_files.py", "tests/records/test_drafts.py", "tests/records/test_run.py"),
}
"""The core files, each with the tests that are meant to catch its mutants."""

EQUIVALENTS: Mapping[tuple[str, str, str], str] = {
    (entry["file"], entry["before"], after): entry["reason"]
    for entry in tomllib.loads((ROOT / "scripts/equivalent_mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for after in entry["after"]
}
"""Mutants that no test can or should catch: the file, the statement and the changed statement, and the reason."""

SWAPPED_OPERATORS: Mapping[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

SWAPPED_METHODS = {"min": "max", "amin": "amax", "argmin": "argmax", "any": "all"}
SWAPPED_METHODS |= {new: old for old, new in SWAPPED_METHODS.items()}

REMOVED_METHODS = frozenset(
    [
        "abs",
        "clamp",
        "clamp_",
        "clone",
        "cpu",
        "detach",
        "double",
        "fill_diagonal_",
        "flip",
        "float",
        "nan_to_num",
        "round",
        "sign",
        "sqrt",
        "square",
    ]
)
"""Methods whose call is replaced by the object that they are called on."""

REMOVED_FUNCTIONS = frozenset(
    ["abs", "float", "int", "list", "max", "min", "repr", "round", "set", "sorted", "str", "tuple"]
)
"""Functions whose call is replaced by each of its arguments."""

UNTESTED_FIELDS = frozenset(("annotation", "returns", "decorator_list"))
"""Parts of a statement that decide nothing when it runs."""


@dataclass(frozen=True)
class Mutant:
    """A core file with one small change.

    Attributes:
        file: the core file, as in `CORE`.
        before: the statement that changes, on one line.
        after: the changed statement, on one line.
        source: the whole changed file.
    """

    file: str
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Name the mutant, whatever its line number is."""
        return self.file, self.before, self.after


def make_mutants(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a source, in the order of its statements."""
    tree = ast.parse(source)
    original = ast.unparse(tree).splitlines()
    mutants = {}
    for field, node, put in list(walk_fields(tree)):
        for changed in change_node(field, node):
            put(changed)
            lines = ast.unparse(tree).splitlines()
            differing = [pair for pair in zip(original, lines, strict=True) if pair[0] != pair[1]]
            before, after = differing[0]
            mutants["\n".join(lines)] = Mutant(file, before.strip(), after.strip(), "\n".join(lines) + "\n")
        put(node)
    return list(mutants.values())


def walk_fields(parent: ast.AST) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], None]]]:
    """Yield every node below a node that may change: the name of its field, itself, and what puts another there."""
    for field, value in ast.iter_fields(parent):
        nodes = value if isinstance(value, list) else [value]
        for index, node in enumerate(nodes):
            if isinstance(node, ast.AST) and field not in UNTESTED_FIELDS and not is_text(node):
                put = partial(value.__setitem__, index) if isinstance(value, list) else partial(setattr, parent, field)
                yield field, node, put
                yield from walk_fields(node)


def is_text(node: ast.AST) -> bool:
    """Return whether a node is a docstring, a sentence or a type of strings: tests do not compare every word."""
    match node:
        case ast.Expr(ast.Constant()) | ast.JoinedStr() | ast.Subscript(ast.Name("Literal")):
            return True
        case ast.Constant(str(text)):
            return " " in text
    return False


def change_node(field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that replace a node in mutants."""
    yield from (operator() for operator in SWAPPED_OPERATORS.get(type(node), ()))
    if field in ("test", "ifs") and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Constant(value) if value is not None and value is not ...:
            yield ast.Constant(change_constant(value))
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Call(ast.Name(name), arguments) if name in REMOVED_FUNCTIONS:
            yield from (argument for argument in arguments if not isinstance(argument, ast.Starred))
        case ast.Call(ast.Attribute(ast.Name("math"), _), [argument, *_]):
            yield argument
        case ast.Call(ast.Attribute(target, name)) if name in REMOVED_METHODS:
            yield target
        case ast.Attribute(target, name, context) if name in SWAPPED_METHODS:
            yield ast.Attribute(target, SWAPPED_METHODS[name], context)
        case ast.Name(name, ast.Load()) if field == "func" and name in SWAPPED_METHODS:
            yield ast.Name(SWAPPED_METHODS[name], ast.Load())
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Break():
            yield ast.Pass()


def change_constant(value: str | bytes | float) -> str | bytes | float:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "X"
    if isinstance(value, bytes):
        return value + b"X"
    return value + 1 if isinstance(value, int) else value * 2 or 1.0


def find_missing(mutants: Sequence[Mutant], files: Sequence[str]) -> list[str]:
    """Return a sentence for each equivalent of these files that is not a mutant."""
    known = {mutant.key for mutant in mutants}
    missing = [key for key in EQUIVALENTS if key[0] in files and key not in known]
    return [
        f"{file} has no mutant {before!r} -> {after!r}: remove it from equivalent_mutants.toml"
        for file, before, after in missing
    ]


def run_tests(checkout: Path, tests: Sequence[str], seconds: float, cached: bool = False) -> bool:
    """Return whether tests pass in a checkout within this time, in a process of their own; `cached` keeps bytecode."""
    process = get_context("fork").Process(target=run_pytest, args=(checkout, tests, cached))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
    return process.exitcode == 0


def run_pytest(checkout: Path, tests: Sequence[str], cached: bool) -> None:
    """Run tests on a checkout's code, quietly, and end the process with pytest's exit code."""
    os.setsid()
    os.chdir(checkout)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    with Path(os.devnull).open("w") as silence:
        os.dup2(silence.fileno(), 1)
        os.dup2(silence.fileno(), 2)
    sys.dont_write_bytecode = not cached
    sys.path.insert(0, str(checkout / "src"))
    os.environ |= {"PYTHONPATH": sys.path[0], "PYTHONDONTWRITEBYTECODE": "" if cached else "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "--hypothesis-seed=0"]
    os._exit(import_module("pytest").main([*options, f"--basetemp={checkout / 'temporary'}", *tests]))


def copy_checkout(folder: Path) -> None:
    """Copy the files that tests need into a folder."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def time_tests(checkout: Path, file: str) -> float:
    """Return the seconds that a core file's tests take; they must pass before it is changed."""
    started = time.monotonic()
    if not run_tests(checkout, CORE[file], seconds=600, cached=True):
        sys.exit(f"{', '.join(CORE[file])} must pass before mutants of {file} are made")
    Path(cache_from_source(str(checkout / PACKAGE / file))).unlink()
    return time.monotonic() - started


def find_survivors(checkout: Path, file: str, mutants: Sequence[Mutant]) -> Iterator[Mutant]:
    """Yield the mutants of a core file that its tests do not catch; a test that never ends catches one, too."""
    path = checkout / PACKAGE / file
    original = path.read_text(encoding="utf-8")
    limit = 10 + 3 * time_tests(checkout, file)
    for mutant in mutants:
        path.write_text(mutant.source, encoding="utf-8")
        if run_tests(checkout, CORE[file], limit):
            yield mutant
    path.write_text(original, encoding="utf-8")


def check_mutants(mutants: Sequence[Mutant]) -> bool:
    """Run the tests on every mutant, print the survivors and the share caught, and return whether it is enough."""
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # pytest collects garbage several times, and need not search these libraries
    tried, survived = Counter(mutant.file for mutant in mutants), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy_checkout(Path(folder))
        for file in tried:
            for mutant in find_survivors(Path(folder), file, [mutant for mutant in mutants if mutant.file == file]):
                survived[file] += 1
                report(f"{file} survives:\n    {mutant.before}\n    {mutant.after}")
            report(f"{file}: {tried[file] - survived[file]} of {tried[file]} caught")
    caught = 1 - survived.total() / max(1, tried.total())
    report(f"{caught:.1%} of {tried.total()} mutants caught; {MIN_CAUGHT:.0%} are required")
    return caught >= MIN_CAUGHT


def report(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Parse the command line, sample the mutants and check them."""
    parser = argparse.ArgumentParser(description="Check that the tests notice small changes of the core files.")
    parser.add_argument("--all", action="store_true", help="try all mutants, not a sample")
    parser.add_argument("--only", action="append", choices=CORE, metavar="FILE", help="try this core file; repeatable")
    parser.add_argument("--sample", type=int, default=500, help="number of mutants to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    options = parser.parse_args()
    files = options.only or list(CORE)
    mutants = [m for file in files for m in make_mutants(file, (ROOT / PACKAGE / file).read_text(encoding="utf-8"))]
    if missing := find_missing(mutants, files):
        sys.exit("\n".join(missing))
    mutants = [mutant for mutant in mutants if mutant.key not in EQUIVALENTS]
    if not options.all and len(mutants) > options.sample:
        chosen = set(random.Random(options.seed).sample(range(len(mutants)), options.sample))
        mutants = [mutant for index, mutant in enumerate(mutants) if index in chosen]
    sys.exit(not check_mutants(mutants))


if __name__ == "__main__":
    main()
