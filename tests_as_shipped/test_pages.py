"""The code of README and guide, as it stands, from top to bottom as a script."""

import re
from pathlib import Path

import pytest
from processes import run_script

ROOT = Path(__file__).parents[1]
SAYS = {
    "README.md": ["of the runs succeeded (95 % interval", "{'bolts': 6, 'bar': 10, 'alloy': 'steel'}"],
    "docs/guide.md": ["Converged", "1 of 1 runs refined", "evaluations per success"],
}


@pytest.mark.parametrize("page", SAYS)
def test_code_of_a_page_runs_and_prints_what_it_claims(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    printed = run_script("\n".join(blocks), tmp_path)
    for words in SAYS[page]:
        assert words in printed
