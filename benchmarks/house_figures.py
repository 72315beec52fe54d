"""Figures of the package's code, beside those of other packages; a check that holds all at once.

    python benchmarks/house_figures.py                  the package
    python benchmarks/house_figures.py ours=dagengine,metrics,judges httpx=/path/to/httpx
    python benchmarks/house_figures.py --worst 10       and the worst of every row
    python benchmarks/house_figures.py --check          exit code 1 if a limit is exceeded

A tree is NAME=DIR[,DIR…]. Tests are left out, links are not followed, files are parsed once.
Limits are in `house_limits.txt`, all of them held together, so that no figure is paid with another.
Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.Assert,
            ast.comprehension, ast.match_case)  # fmt: skip
COMPLEX = 15
SMALL = 60  # lines of a module
OPENERS = re.compile(r"(What|Where|How|That|Who|Whoever|Which)\b")
WHETHER = re.compile(r"(Whether|When|Why)\b")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR = words(
    "told shown said made drawn chosen given taken held kept seen known written sent found lost "
    "worn spent met built grown begun gone"
)
NOT_PARTICIPLES = words("feed need seed speed embed exceed red shed bed heed")
PRONOUNS = words(
    "one ones found said given known told other others it this that these those them they he what "
    "which who all_ rest more less both some any_ each same next_ last first before after now then "
    "here there done made taken left kept seen gone asked written read wanted needed held shown "
    "meant sent put drawn called named counted chosen picked added used lost begun started ended "
    "stopped"
)
NO_COMMENT = re.compile(r"#\s*(type:|noqa|pragma|pyright|fmt|mypy|ruff)")


@dataclass
class Figures:
    """Counts of one tree, and where the worst of each kind are."""

    count: Counter[str] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)
    homes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lengths: list[int] = field(default_factory=list)
    worst: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, kind: str, where: str, weight: int = 1) -> None:
        self.count[kind] += 1
        self.worst[kind].append((weight, where))


def source_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        tests = any(part in ("tests", "_tests") for part in parts) or path.name == "conftest.py"
        # A package called `testing` is ours to ship; elsewhere it holds a project's own tests.
        tests |= "testing" in parts and root.name != "dagengine"
        if not tests and not any(parent.is_symlink() for parent in path.parents):
            yield path


def is_participle(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    return word in IRREGULAR or (
        re.fullmatch(r"[a-z]+ed", word) is not None and word not in NOT_PARTICIPLES
    )


PARTICLES = words("of by at in from to with on for as up out under beside more once")


def is_bare(name: str) -> bool:
    """Return whether a participle stands for a noun: `told`, `asked_of`, but not `paired_test`."""
    words = name.strip("_").split("_")
    return is_participle(name) and (len(words) == 1 or words[1] in PARTICLES)


def measure(roots: Sequence[Path]) -> Figures:
    figures = Figures()
    for root in roots:
        for path in source_files(root):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
                tree = ast.parse(text)
            except SyntaxError:
                continue
            read_module(figures, path, f"{root.name}/{path.relative_to(root)}", text, tree)
    return figures


def read_module(figures: Figures, path: Path, name: str, text: str, tree: ast.Module) -> None:
    lines = text.count("\n")
    figures.count["files"] += 1
    figures.count["lines"] += lines
    figures.modules[path.stem] += path.stem != "__init__"
    if lines < SMALL and path.name != "__init__.py":
        figures.note("small modules", f"{name} {lines}", -lines)
    figures.count["comments"] += count_comments(text)
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            figures.homes[node.name].add(name)
    uses: Counter[str] = Counter()
    helpers: list[tuple[str, int]] = []
    walk(figures, tree, name, uses, helpers)
    for helper, line in helpers:
        if uses[helper] == 1:
            figures.note("single-use helpers", f"{name}:{line} {helper}")


def count_comments(text: str) -> int:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError):
        return 0
    return sum(token.type == tokenize.COMMENT and not NO_COMMENT.match(token.string)
               for token in tokens)  # fmt: skip


def walk(
    figures: Figures, tree: ast.AST, name: str, uses: Counter[str], helpers: list[tuple[str, int]]
) -> None:
    """Visit every node once, with the function that it is in.

    Complexity is McCabe's number, plus one for each further operand of `and`/`or` and each `if` of
    a comprehension. A function within a function, or a lambda, counts by itself.
    """
    complexity: Counter[Function] = Counter()
    waiting: list[tuple[ast.AST, Function | None]] = [(tree, None)]
    while waiting:
        node, owner = waiting.pop()
        match node:
            case ast.Name(id=called, ctx=ctx):
                uses[called] += 1
                if isinstance(ctx, ast.Store):
                    read_local(figures, called.strip("_"), f"{name}:{node.lineno} {called}")
            case ast.Attribute(attr=called):
                uses[called] += 1
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                read_function(figures, node, name)
                if node.name.startswith("_") and not node.name.startswith("__"):
                    helpers.append((node.name, node.lineno))
                complexity[node] += 1
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                figures.count["comprehensions"] += 1
            case ast.IfExp():
                figures.count["ternaries"] += 1
            case _:
                pass
        if owner is not None:
            complexity[owner] += isinstance(node, BRANCHES)
            if isinstance(node, ast.BoolOp):
                complexity[owner] += len(node.values) - 1
            if isinstance(node, ast.comprehension):
                complexity[owner] += len(node.ifs)
        if isinstance(node, FUNCTIONS):
            owner = node
        elif isinstance(node, (ast.Lambda, ast.ClassDef)):
            owner = None
        waiting += ((child, owner) for child in ast.iter_child_nodes(node))
    for function, number in complexity.items():
        if number > COMPLEX:
            figures.note("complex functions", f"{number} {name}:{function.lineno} "
                         f"{function.name}", number)  # fmt: skip


def read_local(figures: Figures, called: str, where: str) -> None:
    figures.count["locals"] += 1
    if called in PRONOUNS:
        figures.note("pronouns", where)
    if called in ("place", "places"):
        figures.note("place", where)


def read_function(figures: Figures, node: Function, name: str) -> None:
    figures.count["functions"] += 1
    figures.lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
    where = f"{name}:{node.lineno} {node.name}"
    if text := ast.get_docstring(node):
        figures.count["docstrings"] += 1
        if OPENERS.match(text):
            figures.note("openers", f"{where}: {text.splitlines()[0]}")
        figures.count["whether"] += WHETHER.match(text) is not None
    properties = {"property", "cached_property"}
    if node.name.startswith("__") or any(
        isinstance(each, ast.Name) and each.id in properties for each in node.decorator_list
    ):
        return
    figures.count["verbs"] += 1
    if is_participle(node.name):
        figures.note("participles", where)
        figures.count["bare participles"] += is_bare(node.name)


def quantile(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


@dataclass(frozen=True)
class Row:
    """One row of the table; `goal` is what good packages have, `kind` the list of the worst."""

    title: str
    value: Callable[[Figures], float]
    goal: float | None = None
    kind: str = ""


def per(kind: str, base: str, scale: float) -> Callable[[Figures], float]:
    return lambda figures: scale * figures.count[kind] / max(figures.count[base], 1)


ROWS = (
    Row("package, lines", lambda f: f.count["lines"], 90_000),
    Row("modules", lambda f: f.count["files"]),
    Row("function lines, median", lambda f: quantile(f.lengths, 0.5)),
    Row("function lines, p95", lambda f: quantile(f.lengths, 0.95)),
    Row("function lines, max", lambda f: max(f.lengths, default=0)),
    Row(f"functions over complexity {COMPLEX}", lambda f: f.count["complex functions"]),
    Row("… per 10,000 lines", per("complex functions", "lines", 1e4), 6, "complex functions"),
    Row("private helpers used once, %", per("single-use helpers", "functions", 100), 15,
        "single-use helpers"),
    Row("comprehensions per 1,000 lines", per("comprehensions", "lines", 1e3), 30),
    Row("ternaries per 1,000 lines", per("ternaries", "lines", 1e3), 20),
    Row("docstrings opening with What, Where, How … %", per("openers", "docstrings", 100), 1,
        "openers"),
    Row("… with Whether, When, Why, %", per("whether", "docstrings", 100), 4),
    Row("functions named by a participle, %", per("participles", "verbs", 100), None,
        "participles"),
    Row("… and by nothing else (told, asked_of), %", per("bare participles", "verbs", 100), 1),
    Row("locals that are pronouns or participles, %", per("pronouns", "locals", 100), 4,
        "pronouns"),
    Row("locals called place", lambda f: f.count["place"], 40, "place"),
    Row("comments per 100 lines (at least)", per("comments", "lines", -100), -2.5),
    Row("module names used twice", lambda f: sum(n > 1 for n in f.modules.values()), 35),
    Row("public names in two modules", lambda f: sum(len(h) > 1 for h in f.homes.values()), 100),
    Row(f"modules under {SMALL} lines", lambda f: f.count["small modules"], 45, "small modules"),
)  # fmt: skip


def shown(value: float) -> str:
    return f"{abs(value):,.0f}" if value == int(value) else f"{abs(value):.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("trees", nargs="*", metavar="NAME=DIR[,DIR…]")
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    default = "dagengine=" + ",".join(
        str(here / part) for part in ("dagengine", "metrics", "judges")
    )
    trees: dict[str, Figures] = {}
    for tree in options.trees or [default]:
        name, _, folders = tree.partition("=")
        trees[name] = measure([Path(folder) for folder in folders.split(",")])
    print("| |" + "".join(f"{name}|" for name in trees) + "goal|")
    print("|---|" + "--:|" * (len(trees) + 1))
    for row in ROWS:
        goal = "" if row.goal is None else f"{'≥' if row.goal < 0 else '≤'} {shown(row.goal)}"
        print(
            f"|{row.title}|"
            + "".join(f"{shown(row.value(f))}|" for f in trees.values())
            + f"{goal}|"
        )
    ours = next(iter(trees.values()))
    for row in ROWS:
        if options.worst and row.kind:
            print(f"\n{row.title}")
            for _, where in sorted(ours.worst[row.kind], reverse=True)[: options.worst]:
                print(f"  {where}")
    if not options.check:
        return 0
    over = [(row, limit) for row, limit in read_limits() if row.value(ours) > limit + 0.05]
    for row, limit in over:
        number = shown(row.value(ours))
        print(f"over the limit: {row.title}: {number}, limit {shown(limit)}", file=sys.stderr)
    return bool(over)


def read_limits() -> list[tuple[Row, float]]:
    """Read lines `title of a row: limit`; a negative limit is a least value."""
    rows = {row.title: row for row in ROWS}
    lines = Path(__file__).with_name("house_limits.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.rpartition(":") for line in lines if not line.startswith("#")]
    return [(rows[title], float(limit)) for title, _, limit in parts]


if __name__ == "__main__":
    sys.exit(main())
