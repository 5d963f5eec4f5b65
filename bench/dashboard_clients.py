"""Sessions of the dashboard without a browser: Streamlit's own protocol, spoken over real WebSockets.

A client opens a session, names a page and an address, sets inputs by their keys and presses buttons, and waits until
the script has run, as the front end does. What it leaves out is the painting. Every message the server sends is read
and counted; an exception that a page shows, and a script that did not end well, are kept as errors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

LARGEST = 2**27
"""Bytes of one message."""


@dataclass
class Client:
    """One session of one user."""

    url: str
    """Of the server, such as http://127.0.0.1:8501."""
    address: dict[str, str]
    """What stands in the address."""
    page: str = ""
    """Path of the page that is open; the first one has none."""
    patience: float = 120.0
    """Seconds to wait for a script to end."""

    errors: list[str] = field(default_factory=list)
    n_bytes: int = 0
    n_runs: int = 0
    seconds: list[float] = field(default_factory=list)
    """What each run took, from sending to the end of the script."""
    sent: dict[str, str] = field(default_factory=dict)
    """What each view was sent last, by its key."""

    _ids: dict[str, str] = field(default_factory=dict)
    _values: dict[str, str] = field(default_factory=dict)
    _pages: dict[str, str] = field(default_factory=dict)
    _channel: ClientConnection | None = None

    def __enter__(self) -> Client:
        stream = f"{self.url.replace('http', 'ws', 1)}/_stcore/stream"
        self._channel = connect(stream, subprotocols=["streamlit"], max_size=LARGEST, origin=self.url)  # pyright: ignore[reportArgumentType]
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel is not None:
            self._channel.close()

    def go(self, page: str) -> float:
        """Open a page; the seconds until it has run."""
        self.page = page
        return self._run()

    def set(self, **inputs: str) -> float:
        """Write into inputs, each by its key, and wait for the page; those that are bound change the address too."""
        self._values |= inputs
        self.address |= {name: value for name, value in inputs.items() if name in BOUND}
        return self._run()

    def press(self, key: str) -> float:
        """Press a button, and wait for what it does."""
        return self._run(pressed=key)

    def has(self, key: str) -> bool:
        """Whether the page that is open has drawn a widget with this key."""
        return key in self._ids

    def _run(self, pressed: str | None = None) -> float:
        message = BackMsg()
        state = message.rerun_script
        state.query_string = urlencode({name: value for name, value in self.address.items() if value})
        state.page_script_hash = self._pages.get(self.page, "")
        state.page_name = "" if self._pages else self.page
        for name, value in self._values.items():
            if name in self._ids:
                widget = state.widget_states.widgets.add()
                widget.id, widget.string_value = self._ids[name], value
        if pressed is not None:
            widget = state.widget_states.widgets.add()
            widget.id, widget.trigger_value = self._ids[pressed], True
        began = time.perf_counter()
        self._send(message)
        self._await(began)
        taken = time.perf_counter() - began
        self.n_runs += 1
        self.seconds.append(taken)
        return taken

    def _send(self, message: BackMsg) -> None:
        assert self._channel is not None, "open the client in a `with`"
        self._channel.send(message.SerializeToString())

    def _await(self, began: float) -> None:
        assert self._channel is not None
        started = False
        while True:
            left = self.patience - (time.perf_counter() - began)
            if left <= 0:
                raise TimeoutError(f"{self.page or 'overview'} did not end within {self.patience:g} s")
            data = self._channel.recv(timeout=left)
            assert isinstance(data, bytes)
            self.n_bytes += len(data)
            message = ForwardMsg.FromString(data)
            kind = message.WhichOneof("type")
            started = started or kind == "new_session"
            self.read(message)
            if kind == "script_finished" and started:
                status = ForwardMsg.ScriptFinishedStatus.Name(message.script_finished)
                if status == "FINISHED_EARLY_FOR_RERUN":
                    continue  # the page asked to be run again, and is
                if status != "FINISHED_SUCCESSFULLY":
                    self.errors.append(f"{self.page}: {status}")
                return

    def read(self, message: ForwardMsg) -> None:
        """Take from one message of the server the pages there are, the widgets that are drawn, and what went wrong."""
        kind = message.WhichOneof("type")
        if kind == "navigation":
            self._pages = {page.url_pathname: page.page_script_hash for page in message.navigation.app_pages}
        if kind != "delta":
            return
        element = message.delta.new_element
        which = element.WhichOneof("type")
        if which is None:
            return
        part = getattr(element, which)
        if which == "exception":
            self.errors.append(f"{self.page}: {part.type}: {part.message}")
        identity = str(getattr(part, "id", ""))
        key = identity.rsplit("-", 1)[-1]
        if which in WIDGETS and key:
            self._ids[key] = identity
        if which == "bidi_component":
            self.sent[key] = part.json


BOUND = frozenset({"run", "step", "head", "memory", "ablate", "text", "prompt", "cell", "token", "b"})
"""Inputs that stand in the address."""

WIDGETS = frozenset({"text_input", "text_area", "button", "selectbox"})


def opened(url: str, address: Mapping[str, str], **more: Any) -> Client:
    """A client at an address."""
    return Client(url=url, address=dict(address), **more)
