"""Build hook of the documentation: every notebook is shown as a page, with the outputs that it was saved with.

Nothing is executed. ``docs/tools/run_notebooks.py`` makes the outputs anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK_TO_NOTEBOOK = re.compile(r"(\]\([^)\s]+)\.ipynb(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for every notebook, beside the notebook itself."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb") and file.abs_src_path:
            path = Path(file.abs_src_path)
            page = "\n".join(convert_notebook(json.loads(path.read_text(encoding="utf-8")), path.name))
            files.append(File.generated(config, file.src_uri.removesuffix(".ipynb") + ".md", content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to a notebook lead to its page."""
    return LINK_TO_NOTEBOOK.sub(r"\1.md\2)", markdown)


def convert_notebook(notebook: dict[str, Any], name: str) -> list[str]:
    """The cells as Markdown; under the title, how to get the notebook."""
    lines: list[str] = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            title, _, text = source.partition("\n")
            get = f'\n<p><a href="{name}" download>Download this page as a notebook</a></p>\n'
            lines += [title, get, text, ""] if number == 0 else [source, ""]
        else:
            lines += ["```python", source, "```", ""]
            for output in cell["outputs"]:
                lines += [*convert_output(output), ""]
    return lines


def convert_output(output: dict[str, Any]) -> list[str]:
    """A table or a figure as it is, all else as text."""
    data = output.get("data", {})
    if "text/html" in data:
        return ['<div class="output">', "".join(data["text/html"]), "</div>"]
    if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        return [f'<p class="output"><img alt="figure" src="data:image/png;base64,{image}"></p>']
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip("\n")
    return ['<div class="output" markdown="1">', "", "```text", text, "```", "", "</div>"]
