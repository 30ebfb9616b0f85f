"""``python -m fedtrain.flower.deployment.warm_worker FD``: the process in which a node's client takes its turns.

Flower starts a process for every message. Each loads torch and reads its client's data anew, which takes much longer
than the turn of a small network. A worker takes one turn after the other, of one app. It is told of them through a
socket without a name, which only the process that started it holds; tensors come and go as they do for Flower's own
processes, between it and the node.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from logging import ERROR
from pathlib import Path

from flwr.app import Error, Message
from flwr.cli.install import install_from_fab
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.config import get_fab_config
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supercore import log
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedtrain.flower.environment import ANY_APP, CLIENT_APP_VARIABLE, OWN_CLIENT_APP

TAKEN, DONE = b"t", b"d"
"""What a worker says of a turn, in a byte: that it has begun, and that nothing more comes of it."""


@dataclass(frozen=True)
class Turn:
    """Where its request is, and what gives access to it."""

    address: str
    token: str
    root_certificates: str | None

    @classmethod
    def decode(cls, line: str) -> Turn:
        """From a line of JSON."""
        return cls(**json.loads(line))

    def encode(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @contextmanager
    def connect(self) -> Iterator[RuntimeHttpClient]:
        """The node, for this turn alone."""
        certificates = None if self.root_certificates is None else Path(self.root_certificates).read_bytes()
        client = RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=certificates is None,
            root_certificates=certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                          RuntimeTokenHttpInterceptor(self.token)],
            retry_invoker=make_simple_http_retry_invoker(),
        )  # fmt: skip
        try:
            yield client
        finally:
            client.close()


def serve(channel: socket.socket) -> None:
    """Take turns until nobody is there to give any, or an app was loaded that came with its run."""
    with channel.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            channel.sendall(TAKEN)
            reusable = take_turn(Turn.decode(line))
            gc.collect()  # what a turn held in cycles may be large
            channel.sendall(DONE)
            if not reusable:
                return


def take_turn(turn: Turn) -> bool:
    """Fetch the request, let the app answer it, and bring the reply; whether this process can take another turn."""
    reusable, message, context, reply = True, None, None, None
    status, details = SubStatus.FAILED, "the turn could not be taken; see the node's log"
    with turn.connect() as client:
        heartbeats = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeats.start()
        try:
            message, context, run, fab = pull_task_input(client)
            app, reusable = load_app(run, fab)
            reply = app(message=message, context=context)
            status, details = SubStatus.COMPLETED, ""
        except Exception as error:
            log(ERROR, "ClientApp raised an exception", exc_info=error)
            details = f"{type(error).__name__}: {error}"
            loading = isinstance(error, LoadClientAppError)
            code = ErrorCode.LOAD_CLIENT_APP_EXCEPTION if loading else ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = None if message is None else Message(Error(code=code, reason=details), reply_to=message)
        try:
            if reply is not None and context is not None:
                push_message(client, reply, context)
        except Exception as error:
            log(ERROR, "Failed to push reply message", exc_info=error)
            status, details = SubStatus.FAILED, f"{type(error).__name__}: {error}"
        push_task_output(client, context, status, details)
        if heartbeats.is_running:
            heartbeats.stop()
    return reusable


def load_app(run: Run, fab: Fab) -> tuple[ClientApp, bool]:
    """The app of a run, and whether it is the one installed here; any other is loaded only if the owner said so."""
    allowed = os.environ.get(CLIENT_APP_VARIABLE, OWN_CLIENT_APP)
    own = OWN_CLIENT_APP if allowed == ANY_APP else allowed
    wanted = get_fab_config(fab.content)["tool"]["flwr"]["app"]["components"].get("clientapp")
    if wanted == own:  # what else came with the run is not even unpacked
        module, _, name = own.partition(":")
        return getattr(importlib.import_module(module), name), True
    if allowed != ANY_APP:
        way_out = f"the owner of this node allows all apps with {CLIENT_APP_VARIABLE}={ANY_APP}"
        raise LoadClientAppError(f"the run wants the app {wanted!r} and this node has {own!r}; {way_out}")
    install_from_fab(fab.content, skip_prompt=True)
    load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    return load(run.fab_id, run.fab_version, fab.hash_str), False


if __name__ == "__main__":
    start_parent_process_monitor(os.getppid())
    with suppress(KeyboardInterrupt, BrokenPipeError), socket.socket(fileno=int(sys.argv[1])) as own_end:
        serve(own_end)
