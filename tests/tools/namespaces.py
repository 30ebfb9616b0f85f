"""Hosts on one machine: network namespaces with an address each, cables to a switch, and nothing else in reach.

Linux, as root, with ``ip`` of iproute2. All addresses are inside of the namespaces, which have no way out of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

SERVER, SWITCH, SUBNET = "server", "switch", "10.83.0"
"""The host that the switch is in; addresses in it are seen by nobody else."""


def why_not():
    """What keeps this machine from having namespaces; nothing if it can."""
    if shutil.which("ip") is None:
        return "there is no program ip (iproute2)"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"fedco2-{os.getpid()}-probe"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    bridge = subprocess.run(["ip", "-n", probe, "link", "add", SWITCH, "type", "bridge"], capture_output=True)
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return "" if bridge.returncode == 0 else "this kernel has no bridges"


class Network:
    """A server with a switch in it, and hosts that are each on a cable of their own."""

    def __init__(self, hosts, folder):
        self.folder, self.hosts = folder, {SERVER: f"{SUBNET}.1"}
        self.hosts |= {name: f"{SUBNET}.{number}" for number, name in enumerate(hosts, 2)}
        self.processes = []

    def __enter__(self):
        try:
            for name in self.hosts:
                ip("netns", "add", self.space(name))
                self.ip(name, "link", "set", "lo", "up")
            self.ip(SERVER, "link", "add", SWITCH, "type", "bridge")
            self.ip(SERVER, "address", "add", f"{self.hosts[SERVER]}/24", "dev", SWITCH)
            self.ip(SERVER, "link", "set", SWITCH, "up")
            for number, name in enumerate(self.hosts):
                if name == SERVER:
                    continue
                far = ["peer", "name", f"port{number}", "netns", self.space(SERVER)]
                self.ip(name, "link", "add", "cable", "type", "veth", *far)
                self.ip(name, "address", "add", f"{self.hosts[name]}/24", "dev", "cable")
                self.ip(name, "link", "set", "cable", "up")
                self.ip(SERVER, "link", "set", f"port{number}", "master", SWITCH, "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *why):
        self.close()

    def close(self):
        """End all that was started, then take the hosts away, and their cables with them."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                with suppress(ProcessLookupError):  # it and all that it has started
                    os.killpg(process.pid, number)
            end = time.monotonic() + 10
            while any(process.poll() is None for process in self.processes) and time.monotonic() < end:
                time.sleep(0.1)
        for name in self.hosts:
            space = self.space(name)
            for line in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
                with suppress(ProcessLookupError):  # what has left its group
                    os.kill(int(line), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)

    def space(self, name):
        """Of a host, as the system calls it."""
        return f"fedco2-{os.getpid()}-{name}"

    def ip(self, name, *words):
        """Set up something of a host."""
        ip("-n", self.space(name), *words)

    def cut(self, name):
        """Pull a host's cable out of the switch."""
        self.ip(SERVER, "link", "set", f"port{[*self.hosts].index(name)}", "down")

    def mend(self, name):
        """Put it back."""
        self.ip(SERVER, "link", "set", f"port{[*self.hosts].index(name)}", "up")

    def run(self, name, words, environment, **how):
        """Run a command on a host to its end."""
        return subprocess.run(
            self.command(name, words), env=environment, capture_output=True, text=True, timeout=300, **how
        )

    def start(self, name, words, environment, log: Path, cwd=None):
        """Start a command on a host."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                self.command(name, words), env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, cwd=cwd,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def command(self, name, words):
        """A command, to be run on a host."""
        return ["ip", "netns", "exec", self.space(name), *map(str, words)]


def ip(*words):
    """Tell the kernel."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
