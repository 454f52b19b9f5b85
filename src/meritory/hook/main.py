"""The command that agent clients run at their events; standard library only.

It reads a client's event as JSON from stdin, sends it to the daemon, and prints the daemon's answer
as JSON in the client's shape. The exit code is always 0 and stderr stays empty: memory must never
keep an agent from working. `__main__.py` is the script that runs it. Every prompt waits for the
imports of this file.
"""

from __future__ import annotations

# The C modules behind `json`, `signal` and `socket`: those load slower than all the rest.
import _json
import _signal as signal  # type: ignore[import-not-found]
import _socket
import os
import sys
import time

TYPE_CHECKING = False


def _load(name: str) -> Any:
    """Load a module by its path: without site-packages, the package cannot be imported."""
    from _frozen_importlib_external import SourceFileLoader

    module = type(sys)(f"meritory_hook_{name}")
    path = f"{os.path.dirname(os.path.abspath(__file__))}/{name}.py"
    SourceFileLoader(module.__name__, path).exec_module(module)
    return module


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from meritory.hook import shapes

    # Tells the daemon that its text was printed; the flag says whether to wait for the answer.
    Report = Callable[[bool], object]
else:
    shapes = _load("shapes")

SWITCH, HIDE_SWITCH = "MERITORY_HOOK", "MERITORY_HOOK_HIDE_RATINGS"
# The address of a daemon on another machine, used instead of the local one.
ELSEWHERE = "MERITORY_URL"
# The longest wait for anything.
BUDGET_S = 2.0
# A guard that takes longer lets the tool through.
GUARD_BUDGET_S = 0.25
# Claude Code gives all hooks at a session's end 1.5 s together.
END_BUDGET_S = 1.0
# A daemon starts in about 0.7 s; only the start of a session waits for it.
START_WAIT_S = 1.0
LATER_WAIT_S, PAUSE_S = 15.0, 0.02

INPUT_LIMIT_BYTES, ANSWER_LIMIT_BYTES = 8 << 20, 4 << 20
CONTEXT_LIMIT_UNITS, PATH_LIMIT_CHARS = shapes.CONTEXT_LIMIT_UNITS, shapes.PATH_LIMIT_CHARS
HARNESSES = shapes.HARNESSES
# The errors that mean: no daemon is running.
_DOWN = (FileNotFoundError, ConnectionRefusedError)
_WRONG = (OSError, ValueError, ArithmeticError, RecursionError)
_BUDGETS_S = {shapes.END: END_BUDGET_S, shapes.TOOL: GUARD_BUDGET_S}


# -- input and output ----------------------------------------------------------------------


def main(arguments: list[str], raw: bytes, environ: Mapping[str, str]) -> bytes:
    """Return the output for one event, and report it as printed to the agent."""
    output, report = answer(arguments, raw, environ)
    report(True)
    return output


def answer(arguments: list[str], raw: bytes, environ: Mapping[str, str]) -> tuple[bytes, Report]:
    """Return the output for one event, and what reports to the daemon that it was printed."""
    flags: dict[str, str] = {}
    for index, word in enumerate(arguments):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            flags[option] = value if equals else "".join(arguments[index + 1 : index + 2])
    switch = environ.get(SWITCH, "").strip().lower()
    try:
        payload = _decoded(raw)
    except (ValueError, RecursionError):
        return NOTHING
    if switch == "off" or not isinstance(payload, dict):
        return NOTHING
    name = shapes.caller(flags.get("--harness", ""), payload)
    row = HARNESSES.get(name)
    if row is None:
        return NOTHING
    named = shapes.text(payload, "hook_event_name", "hookEventName") or flags.get("--event", "")
    native = named or next((guess for key, guess in shapes.GUESSES.items() if key in payload), "")
    event = row.events.get(native, "")
    if event == shapes.DISPLAY:
        is_wanted = "--hide-ratings" in flags or environ.get(HIDE_SWITCH, "").lower() == "on"
        is_wanted &= not shapes.text(payload, "agent_id")
        return (_printed(shapes.displayed(payload)), _nothing) if is_wanted else NOTHING
    body = shapes.body(event, row, payload)
    if body is None:
        return NOTHING
    body |= shapes.asking(event, payload) if "--ask-to-keep" in flags else {}
    body |= {"harness": name, "client_home": environ.get(row.home, "")[:PATH_LIMIT_CHARS]}
    home = _place(flags.get("--home", ""), environ)
    if event in row.settles_s:
        if "://" in home or switch != "nostart" or os.path.isdir(home):
            _later(lambda: _settled(home, event, body, environ, row.settles_s[event]))
        return NOTHING
    deadline = time.monotonic() + _BUDGETS_S.get(event, BUDGET_S - 0.1)
    try:
        reply, report = _asked(home, event, body, deadline)
    except _DOWN:
        reply, report = _woken(home, event, body, environ)
    except _WRONG:
        _keep(home, event, body)
        return NOTHING
    output = _printed(shapes.answered(row, event, native, reply))
    return output, report if output else _unshown(home, reply, report)


def _nothing(waits: bool) -> None:
    """There is nothing to report."""


def _unshown(home: str, reply: dict[str, Any], report: Report) -> Report:
    """Nothing printed, nothing shown: the client shows nothing here, or would cut the text."""
    reply.pop("receipt", None)
    return report if "://" in home else _nothing


NOTHING: tuple[bytes, Report] = (b"", _nothing)


def _printed(answer: dict[str, Any]) -> bytes:
    return _encoded(answer) if answer else b""


def _encoded(value: dict[str, Any]) -> bytes:
    return _written(value).encode("utf-8", "replace")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_json.encode_basestring(key)}:{_written(value[key])}" for key in value)
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return str(value).lower() if isinstance(value, int) else _json.encode_basestring(value)


class _Rules:
    """The options of the JSON scanner."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float


def _decoded(raw: bytes) -> Any:
    text = raw.decode("utf-8").strip(" \t\r\n\ufeff")
    try:
        value, end = _json.make_scanner(_Rules)(text, 0)  # type: ignore[arg-type]
    except StopIteration:
        end = -1
    if end != len(text):
        raise ValueError("not JSON")
    return value


# -- the daemon -----------------------------------------------------------------------------


def _place(given: str, environ: Mapping[str, str]) -> str:
    """Return the data folder, or the address of a daemon elsewhere with it as the fragment.

    A fragment is never sent: it is where events for that daemon are kept.
    """
    home, url = _home(given, environ), environ.get(ELSEWHERE, "").strip().partition("#")[0]
    if not url:
        return home
    return f"{url}#{home}" if "://" in url else f"://{url}#{home}"


def _home(given: str, environ: Mapping[str, str]) -> str:
    """Return the data folder, by the rule of `meritory.settings.home`."""
    own = environ.get("HOME") or os.path.expanduser("~")
    chosen = given or environ.get("MERITORY_HOME", "") or os.path.join(own, ".meritory")
    if chosen == "~" or chosen.startswith("~/"):
        chosen = os.path.join(own, chosen[2:])
    return os.path.abspath(chosen)


def _asked(
    home: str, event: str, body: dict[str, Any], deadline: float
) -> tuple[dict[str, Any], Report]:
    """Send an event to the daemon; return its answer, empty if it refuses, and what reports it.

    Raise OSError if there is no answer, or if the daemon cannot take the event at present.
    """
    if "://" in home:
        return _asked_elsewhere(home, event, body, deadline)
    connection, host, token = _connected(home, deadline)
    until_ms = int((time.time() + deadline - time.monotonic()) * 1000)
    body, receipt = {**body, "waits_until_ms": until_ms}, {}
    try:
        connection.sendall(_request(event, host, token, body))
        first, rest = _received(connection, deadline)
        if first[9:10] == b"5" or first[9:12] == b"429":
            raise OSError("the daemon cannot take it now")
        found = _decoded(rest) if first.startswith(b"HTTP/1.1 200 ") else None
        receipt = _receipt(body, found)
    finally:
        if not receipt:
            connection.close()

    def report(waits: bool) -> None:
        try:
            # On the same connection, and the hook need not wait for the answer.
            connection.sendall(_request("delivered", host, token, receipt))
            if waits:
                _received(connection, deadline)
        except OSError:
            pass
        finally:
            connection.close()

    return found if isinstance(found, dict) else {}, report if receipt else _nothing


def _asked_elsewhere(
    home: str, event: str, body: dict[str, Any], deadline: float
) -> tuple[dict[str, Any], Report]:
    """Do the same with a daemon on another machine; the report also sends what is kept for it."""
    remote = _load("remote")
    raw = remote.asked(home, event, body, deadline, _encoded)
    found = _decoded(raw) if raw else None
    if not isinstance(found, dict):
        return {}, _nothing

    def report(waits: bool) -> None:
        receipt, until = _receipt(body, found), time.monotonic() + LATER_WAIT_S

        def work() -> None:
            if receipt:
                remote.asked(home, "delivered", receipt, until, _encoded)
            remote.send_kept(home, event, body, until, _encoded)

        if receipt or remote.has_kept(home):
            work() if waits else _later(work)

    return found, report


def _receipt(body: dict[str, Any], found: Any) -> dict[str, Any]:
    """Return the request that confirms an answer; empty if it needs none."""
    receipt = shapes.text(found, "receipt") if isinstance(found, dict) else ""
    names = ("session_key", "relayed", "cwd", "harness")
    return {**{name: body[name] for name in names}, "receipt": receipt} if receipt else {}


def _request(event: str, host: str, token: str, body: dict[str, Any]) -> bytes:
    content = _encoded(body)
    head = (
        f"POST /api/hooks/{event} HTTP/1.1\r\nHost: {host}\r\n{token}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode("ascii") + content


def _received(connection: _socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Return the head and the body of an answer; raise OSError if it is cut."""
    raw, piece = b"", b"."
    while piece and len(raw) <= ANSWER_LIMIT_BYTES and time.monotonic() <= deadline:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(65_536)
        raw += piece
        first, found, rest = raw.partition(b"\r\n\r\n")
        _, _, after = first.lower().partition(b"\r\ncontent-length:")
        if found and (len(rest) >= int(after.partition(b"\r")[0]) if after else not piece):
            return first, rest
    raise OSError("the answer is cut")


def _connected(home: str, deadline: float) -> tuple[_socket.socket, str, str]:
    """Return a connection, the Host header, and the Authorization header for a port."""
    try:
        with open(os.path.join(home, "daemon.json"), "rb") as file:
            daemon = _decoded(file.read(65_536))
        path, url = daemon["socket"], daemon["url"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileNotFoundError from error
    if isinstance(path, str) and os.lstat(path).st_uid != os.geteuid():
        # A socket of another user: the daemon that wrote the file is gone.
        raise FileNotFoundError(path)
    family, address, host, token = _socket.AF_UNIX, path, "localhost", ""
    if not isinstance(path, str):
        host = str(url).partition("://")[2].partition("/")[0]
        name, _, port = host.rpartition(":")
        family = _socket.AF_INET6 if name.startswith("[") else _socket.AF_INET
        address = (name.strip("[]"), int(port))
        with open(os.path.join(home, "token"), encoding="ascii") as file:
            token = f"Authorization: Bearer {file.read(1_000).strip()}\r\n"
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        connection.connect(address)
    except _WRONG:
        connection.close()
        raise
    return connection, host, token


# -- a daemon that is down ------------------------------------------------------------------


def _keep(home: str, event: str, body: dict[str, Any]) -> None:
    """Keep an end, or the ratings of a reply, until a daemon takes it."""
    if event not in (shapes.END, shapes.REPLY):
        return
    # No agent waits for the answer any more.
    body.pop("asks_to_keep", None)
    address = ""
    try:
        if "://" in home:
            address, home, body = _load("remote").kept(home, body)
            _load("wake").prepare(home)
        if os.path.isdir(home):
            _load("spool").put(home, event, body, _encoded, shapes.TRAILER, address)
    except _WRONG:
        pass


def _woken(
    home: str, event: str, body: dict[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], Report]:
    """Start the daemon; only the start of a session waits for it, briefly."""
    try:
        if environ.get(SWITCH, "").strip().lower() == "nostart":
            _keep(home, event, body)
        elif event == shapes.START:
            return _patiently(home, event, body, environ, START_WAIT_S)
        elif event in (shapes.PROMPT, shapes.TOOL):
            _load("wake").start(home, environ)
        elif event == shapes.COMPACT:
            _later(lambda: _patiently(home, event, body, environ, LATER_WAIT_S))
        else:
            _load("wake").prepare(home)
            _keep(home, event, body)
            _later(lambda: _awaken(home, environ))
    except _WRONG:
        pass
    return {}, _nothing


def _patiently(
    home: str, event: str, body: dict[str, Any], environ: Mapping[str, str], wait_s: float
) -> tuple[dict[str, Any], Report]:
    """Start the daemon, after an ending one is gone, and send the event when it is up."""
    deadline, is_started, wake = time.monotonic() + wait_s, False, _load("wake")
    while True:
        is_started = is_started or wake.start(home, environ)
        try:
            return _asked(home, event, body, deadline + BUDGET_S / 4)
        except _DOWN:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def _awaken(home: str, environ: Mapping[str, str]) -> None:
    """Start the daemon, after an ending one is gone; it takes what is kept."""
    deadline, wake = time.monotonic() + LATER_WAIT_S, _load("wake")
    while not wake.start(home, environ) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)


def _later(work: Callable[[], object]) -> None:
    """Run work in another process, so that the client does not wait for a reply or an end."""
    if os.fork():
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        work()
    finally:
        os._exit(0)


def _settled(
    home: str, event: str, body: dict[str, Any], environ: Mapping[str, str], pause_s: float
) -> None:
    """Send an event after the client has written its transcript."""
    time.sleep(pause_s)
    try:
        _, report = _asked(home, event, body, time.monotonic() + LATER_WAIT_S)
    except _DOWN:
        _woken(home, event, body, environ)
    except _WRONG:
        _keep(home, event, body)
    else:
        report(True)


def run(arguments: list[str]) -> None:
    """Read the event, send it, print the answer, and always exit with 0."""
    try:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, BUDGET_S)
        raw, piece = b"", b"{"
        while piece:
            piece = os.read(0, 1 << 20)
            # Too much input is still read: a closed pipe could fail the client.
            raw = raw + piece if len(raw) <= INPUT_LIMIT_BYTES else raw
        left, report = NOTHING
        if len(raw) <= INPUT_LIMIT_BYTES:
            left, report = answer(arguments, raw, os.environ)
        while left:
            left = left[os.write(1, left) :]
        report(False)
    finally:
        # No traceback: errors print nothing.
        os._exit(0)
