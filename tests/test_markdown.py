"""The Markdown files: lines of at most 100 characters, links and commands that lead somewhere.

`docs/design/structure.md` must name every module, and the examples of `docs/extending.md` must run.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import scasml
from scasml import _bench

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONGEST = 100

name_of = lambda path: str(path.relative_to(ROOT))


def too_long(text):
    """Return the lines that are too long, except a link that cannot be broken."""
    is_link = lambda line: re.fullmatch(r"\s*([-*>] |\d+\. )?!?\[[^\[\]]*\]\(\S+\)[.,;:]?", line)
    return [line for line in text.split("\n") if len(line) > LONGEST and not is_link(line)]


def without_code(text):
    """Return the text without fenced blocks and without code inside lines."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "code", text)


def anchors(path):
    """Return the anchors that GitHub gives to the headings of a file."""
    text = re.sub(r"^( *)```.*?^\1```", "", path.read_text("utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path, text):
    """Return the relative links and images of the text that lead nowhere."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    return broken


def bad_commands(text):
    """Return the commands `pytest ...` and `scasml bench ...` that name what does not exist."""
    bad = []
    for command in re.findall(r"`(pytest [^`]*|scasml bench [^`]*|python [^`]*)`", text):
        words = shlex.split(command.replace("\n", " "))
        if words[:2] == ["scasml", "bench"]:
            bad += [command] * (words[2] not in (*_bench.names(), "NAME"))
            continue
        files = [ROOT / word.partition("::")[0] for word in words if word.startswith("tests")]
        files += [ROOT / word for word in words if re.match(r"(docs|examples)/\w+\.py", word)]
        if not all(file.exists() for file in files):
            bad.append(command)
        elif "-k" in words:
            code = "".join([file.read_text("utf-8") + file.name for file in files]).lower()
            chosen = re.findall(r"\w+", words[words.index("-k") + 1].lower())
            if any(word not in code for word in chosen if word not in ("and", "or", "not")):
                bad.append(command)
    return bad


def missing_files(text):
    """Return the test files that the text names but that do not exist."""
    return [name for name in re.findall(r"tests/[\w/]+\.py", text) if not (ROOT / name).exists()]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_lines_links_and_commands(path):
    text = path.read_text("utf-8")
    assert too_long(text) == []
    assert broken_links(path, text) == []
    assert bad_commands(text) == []
    assert missing_files(text) == []


def test_planted_faults_are_seen():
    readme = ROOT / "README.md"
    assert too_long("word " * 21) != []
    assert too_long("```\n" + "x" * 101 + "\n```") != []
    assert too_long("- ![short](" + "x" * 101 + ".png)") == []
    assert too_long("see [short](" + "x" * 101 + ".md)") != []
    assert broken_links(readme, "[a](docs/none.md)") == ["docs/none.md"]
    assert broken_links(readme, "[a](docs/paths.md#none)") == ["docs/paths.md#none"]
    assert broken_links(readme, "![a](docs/images/none.png)") == ["docs/images/none.png"]
    assert broken_links(readme, "`[a](none.md)` [b](docs/paths.md#steps) [c](https://a.b)") == []
    assert bad_commands("`scasml bench none`") != []
    assert bad_commands("`pytest tests/none.py`") != []
    assert bad_commands(f"`pytest tests/test_markdown.py -k {'z' * 9}`") != []
    assert bad_commands("`pytest tests/test_markdown.py -k planted_faults`") == []
    assert missing_files("`tests/none.py`") == ["tests/none.py"]


def test_every_file_is_linked_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#\s]+)\)", index.read_text("utf-8"))
    }
    assert [name_of(path) for path in (ROOT / "docs").rglob("*.md") if path not in linked] == [
        "docs/index.md"
    ]


def modules_of_the_page():
    """Return the modules that `docs/design/structure.md` lists, as paths below the package."""
    text = (ROOT / "docs" / "design" / "structure.md").read_text("utf-8")
    tree = text.partition("## Package tree")[2].partition("\n## ")[0]
    found, package = set(), ""
    for heading, item in re.findall(r"^### `(\S+)`$|^- `(\S+)`: ", tree, flags=re.MULTILINE):
        package = heading or package
        name = heading or package + item
        found.add(name if name.endswith((".py", "/")) else f"{name}.py")
    return {f"{name}__init__.py" if name.endswith("/") else name for name in found}


def test_the_page_on_structure_names_every_module():
    source = Path(scasml.__file__).parent
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert modules_of_the_page() == modules


def examples():
    """Return the examples of `docs/extending.md` by their file names."""
    text = (ROOT / "docs" / "extending.md").read_text("utf-8")
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL)
    return dict(blocks)


def test_examples_of_extensions_are_short():
    found = examples()
    assert len(found) == 8  # seven extension points; the adapter has a file that uses it
    for code in found.values():
        lines = [line for line in code.split("\n") if line.strip()]
        assert len([line for line in lines if not re.match("(import|from) ", line)]) < 30


@pytest.mark.slow
@pytest.mark.parametrize("name", examples())
def test_examples_of_extensions_run(name, tmp_path):
    for file, code in examples().items():
        (tmp_path / file).write_text(code, encoding="utf-8")
    command = [sys.executable, name]
    if name == "mine.py":
        line = "--import mine solve mine --dim 5 --rtol 1e-2"
        command = [sys.executable, "-m", "scasml", *line.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout or name == "polynomial_adapter.py"
