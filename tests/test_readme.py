"""Every Python block of the README runs and prints something."""

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.search(r"dim=\S+", block).group())
def test_block(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of the blocks saves a file
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_number_of_blocks():
    assert len(BLOCKS) == 4
