"""What every test runs under (one thread a worker, no screen, no deadline), a browser, and runs that nobody trained."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, and for the commands that tests start
os.environ["MPLBACKEND"] = "Agg"

import json
import random
import re
import shutil
import signal
import subprocess

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and all it starts, would ignore it
settings.register_profile("fedco2", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fedco2")

# --- a browser

PROBE = """
<script>
addEventListener("load", () => {
  const found = {
    images: [...document.images].map(image => image.naturalWidth),
    sizes: [...document.querySelectorAll("h1, h2, table, figure")]
      .map(one => one.getBoundingClientRect()).map(box => Math.min(box.width, box.height)),
    hidden: [...document.querySelectorAll("td.end")].filter(end => {
      const box = end.getBoundingClientRect(), other = end.previousElementSibling?.getBoundingClientRect();
      return other && box.left < other.right - 1;
    }).length,
    unruled: [...document.querySelectorAll(".plain tbody th")]
      .filter(name => getComputedStyle(name.closest("table")).borderCollapse !== "separate").length,
    content: document.documentElement.scrollWidth,
    window: innerWidth,
    errors: window.errors,
    requests: performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:")).length,
  };
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
  parent.postMessage(out.textContent, "*");
});
</script></body>"""
FRAME = """<!doctype html>
<title>narrow</title>
<iframe src="{src}" style="width: {width}px; height: 800px; border: 0"></iframe>
<pre id="probe"></pre>
<script>onmessage = event => {{ document.getElementById("probe").textContent = event.data; }};</script>"""
"""A window has a least width, a frame has none."""
LISTEN = """<head><script>
window.errors = [];
window.onerror = message => { errors.push(String(message)); };
console.error = (...words) => { errors.push(words.join(" ")); };
</script>"""


@pytest.fixture
def probe(tmp_path_factory):
    """Opens a copy of a page that may run our two scripts, and gives what they found: (page, width) -> dict."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium or chrome on this machine")
    folder = tmp_path_factory.mktemp("browser")

    def look(page, width):
        page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        file = folder / "probe.html"
        file.write_text(page.replace("<head>", LISTEN, 1).replace("</body>", PROBE), encoding="utf-8")
        if width < 600:
            frame = folder / "frame.html"
            frame.write_text(FRAME.format(src=file.as_uri(), width=width), encoding="utf-8")
            file = frame
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=5000",
            f"--window-size={width},900", "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.S)
        assert found, done.stderr[-2000:]
        return json.loads(found[1])

    return look


# --- folders of runs that nobody trained

BRANCHES = {"fedco2": ("online", "offline"), "fedrod": ("generic", "personal"), "copa": ("own", "peers")}


@pytest.fixture(scope="session")
def fake_run():
    """Writes the folder of a run with made-up accuracies: about ``level`` at its last round, less before.

    With ``tested`` there are validation data in every evaluated round, and test data in these only.
    """
    from fedtrain.config.schema import parse_config
    from fedtrain.federated.communication import CommunicationCost, PayloadBytes
    from fedtrain.federated.messages import Broadcast
    from fedtrain.runs import checkpoint
    from fedtrain.runs.folder import LAST_CHECKPOINT, SUMMARY_FILE, RunFolder

    def rows_of(method, seed, level, rounds, clients, n, tested):
        chance = random.Random(f"{method} {seed}")
        for k, client in enumerate(clients):
            top = level + chance.gauss(0, 0.02) - 0.05 * (k % 8)
            for j, branch in enumerate(("fused", *BRANCHES.get(method, ()))):
                for round in rounds:
                    accuracy = min(1.0, (top - 0.02 * j) * (1 - 0.5 / round))
                    splits = ["test"] if tested is None else ["val", "test"] if round in tested else ["val"]
                    for split in splits:
                        yield {"round": round, "client": client, "split": split, "branch": branch} | {
                            "accuracy": accuracy, "loss": 1.0, "n": n,
                        }  # fmt: skip

    def new(path, method="fedavg", seed=1, level=0.8, *, rounds=10, reached=None, clients=("b", "a", "c"), n=200,
            sections=None, tested=None, **data):  # fmt: skip
        reached = rounds if reached is None else reached
        tables = {"seed": seed, "method": {"name": method}, "server": {"rounds": rounds}, "evaluation": {"every": 2}}
        for section, table in (sections or {}).items():
            tables[section] = tables.get(section, {}) | table
        held = [{"name": name, "train": [10 + k, 20, 30 - k]} for k, name in enumerate(clients)]
        about = {"title": "Toy", "standin": False, "classes": ["x", "y", "z"], "notes": [], "clients": held} | data
        folder = RunFolder(path)
        folder.begin(parse_config(tables), {"command": f"fedco2 train --seed {seed}", "data": about})
        folder.append_rows(rows_of(method, seed, level, range(2, reached + 1, 2), clients, n, tested))
        price = 0 if method == "singleset" else 1_000_000 * reached
        sent, seconds = CommunicationCost(PayloadBytes(price), PayloadBytes(2 * price)), 3.0 * reached
        if reached == rounds:
            cost = {"bytes": sent.to_dict(), "seconds": seconds}
            folder.write_json(SUMMARY_FILE, {"finished": True, "rounds": reached, **cost})
        else:
            state = checkpoint.RunState(Broadcast(reached, {"w": torch.zeros(1)}, {}), {}, sent, seconds)
            checkpoint.save_checkpoint(state, path / LAST_CHECKPOINT)
        return path

    return new
