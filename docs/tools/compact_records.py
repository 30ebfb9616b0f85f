"""Store the JSON of published records compactly: one line for each client or plain collection, nothing dropped.

Run it after adding a run to docs/results/records: ``python docs/tools/compact_records.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "results" / "records"
WIDTH, ITEM = 160, 500  # columns: of a value, and of an item of a list (a client)


def compact(value: Any, indent: str = "", width: int = WIDTH) -> str:
    """JSON in which every value stands on one line if it fits, and always if nothing is nested in it."""
    line = json.dumps(value, ensure_ascii=False)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    divisible = any(isinstance(item, dict | list) for item in items)
    if not divisible or len(indent) + len(line) <= width:
        return line
    inner = indent + " "
    if isinstance(value, list):
        items = [inner + compact(item, inner, ITEM) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    entries = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {compact(item, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def main() -> None:
    """Rewrite every JSON file of the records."""
    for path in sorted(RECORDS.rglob("*.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(compact(value) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
