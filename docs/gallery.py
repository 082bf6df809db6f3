"""Make the pictures of the gallery again: `python docs/gallery.py` (or `make gallery`) runs the code on its page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main() -> None:
    os.chdir(DOCS)
    names: dict[str, object] = {}
    for language, text in BLOCK.findall(Path("gallery.md").read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(text, "gallery.md", "exec"), names)
            continue
        for command in text.splitlines():
            words = command.split()
            words = words[1:] if words[0] == "python" else ["-m", *words]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree("runs")  # what was saved on the way; its tables would be taken for pages of the site


if __name__ == "__main__":
    main()
