"""Execute the notebooks of the documentation and save their outputs, kept small.

Run it after a change that shows in them: ``python docs/tools/run_notebooks.py``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from PIL import Image
from traitlets.config import Config

DOCS = Path(__file__).parents[1]
COLOURS = 64
"""Enough for a figure of lines and letters."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run all cells in an empty folder."""
    with TemporaryDirectory() as folder:
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})  # no port is opened
        where = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", coalesce_streams=True, resources=where, config=sockets
        ).execute()
    return notebook


def shrink(notebook: nbformat.NotebookNode) -> None:
    """Leave out what changes from one execution to the next, and draw figures with few colours."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = shrink_png(output.data["image/png"])


def shrink_png(encoded: str) -> str:
    """The same image with a palette."""
    drawn = BytesIO()
    image = Image.open(BytesIO(b64decode(encoded))).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(drawn, format="png", optimize=True)
    return b64encode(drawn.getvalue()).decode()


def main() -> None:
    """All of them."""
    for path in sorted(DOCS.rglob("*.ipynb")):
        notebook = execute(nbformat.read(path, as_version=4))
        shrink(notebook)
        nbformat.write(notebook, path)
        print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
