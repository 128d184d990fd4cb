"""Where the embedded server may live: conventions, private folders, mounts, and the secret."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import semcache
from semcache.errors import EmbeddedServerError
from semcache.stores._folders import (
    SOCKET_PATH_BYTES,
    Mount,
    choose_socket,
    default_folder,
    folder_secret,
    is_network,
    make_private,
    mount_of,
    mounts_from_bsd,
    mounts_from_proc,
    prepare_data_folder,
)

PROC_MOUNTS = r"""
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
files:/export /home nfs4 rw,vers=4.2,addr=10.0.0.9 0 0
/dev/vdb /home/ada/local\040disk ext4 rw 0 0
drvfs /mnt/c 9p rw,trans=fd,aname=drvfs 0 0
me@host: /mnt/far fuse.sshfs rw 0 0
/dev/vdc /data xfs rw 0 0
//server/share /data cifs rw 0 0
""".strip()
BSD_MOUNTS = """
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//ada@server/our share on /Volumes/our share (smbfs, nodev, nosuid, mounted by ada)
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/semcache", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/.local/share/semcache", "nfs4"),
        ("/home/ada/local disk/semcache", "ext4"),
        ("/homes/ada", "ext4"),
        ("/mnt/c/Users/ada", "9p"),
        ("/mnt/far/away", "fuse.sshfs"),
        ("/data/semcache", "cifs"),
    ],
)
def test_a_path_is_on_the_deepest_mount_and_the_last_of_several(path: str, kind: str) -> None:
    mount = mount_of(path, mounts_from_proc(PROC_MOUNTS))

    assert mount is not None
    assert mount.kind == kind


def test_the_table_of_macos_is_read_with_spaces_in_names() -> None:
    mounts = mounts_from_bsd(BSD_MOUNTS)

    assert mount_of("/Volumes/our share/semcache", mounts) == Mount(point="/Volumes/our share", kind="smbfs")
    assert mount_of("/Users/ada", mounts) == Mount(point="/", kind="apfs")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.s3fs", "9p", "ceph", "lustre"]
)
def test_a_network_file_system_is_recognised(kind: str) -> None:
    assert is_network(Mount(point="/mnt/x", kind=kind))


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuseblk", "nfsd", "f2fs"]
)
def test_a_local_file_system_is_not_taken_for_a_network_one(kind: str) -> None:
    assert not is_network(Mount(point="/mnt/x", kind=kind))


def test_a_sandbox_whose_root_is_9p_is_local() -> None:
    assert not is_network(Mount(point="/", kind="9p"))


def test_a_data_folder_on_a_network_file_system_is_refused_before_it_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    mounts = mounts_from_proc(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0")

    with pytest.raises(EmbeddedServerError, match=r"network file system \(nfs4 at .*redis://"):
        prepare_data_folder(folder, mounts=mounts)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"SEMCACHE_HOME": "/x/y", "XDG_DATA_HOME": "/z"}, "linux", "/x/y"),
        ({"XDG_DATA_HOME": "/z"}, "linux", "/z/semcache"),
        ({"XDG_DATA_HOME": "relative"}, "linux", "/home/ada/.local/share/semcache"),
        ({}, "linux", "/home/ada/.local/share/semcache"),
        ({}, "darwin", "/home/ada/Library/Application Support/semcache"),
        ({"SEMCACHE_HOME": ""}, "darwin", "/home/ada/Library/Application Support/semcache"),
    ],
)
def test_the_default_folder_follows_the_platform(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    assert default_folder({"HOME": "/home/ada", **environ}, platform=platform) == Path(expected)


def test_a_user_without_a_home_folder_is_told_to_name_one() -> None:
    with pytest.raises(EmbeddedServerError, match="SEMCACHE_HOME"):
        default_folder({"HOME": "~"}, platform="linux")


def test_a_new_or_empty_data_folder_becomes_private(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)

    for folder in (there, tmp_path / "a" / "b"):
        prepare_data_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_with_other_things_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    tmp_path.chmod(0o755)

    prepare_data_folder(tmp_path)

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_folder_with_other_things_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    tmp_path.chmod(0o777)

    with pytest.raises(EmbeddedServerError, match=r"mode 777\).*chmod 700"):
        prepare_data_folder(tmp_path)


def test_a_file_in_place_of_the_data_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EmbeddedServerError, match="File exists"):
        prepare_data_folder(tmp_path / "file")


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def refusal_for_a_plain_user(folder: Path) -> str:
    """Return why a folder is refused to a user who isn't root, in a child that gives root's rights away."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            prepare_data_folder(folder, mounts=())
        except EmbeddedServerError as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with open(reads) as answer:
        return answer.read()


def test_a_folder_that_cannot_be_written_is_refused(anybodys: Path) -> None:
    folder = anybodys / "data"
    folder.mkdir(mode=0o500)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)

    assert "can't be written by this user" in refusal_for_a_plain_user(folder)
    assert "Permission denied" in refusal_for_a_plain_user(folder / "below")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(anybodys: Path) -> None:
    assert "belongs to user 0, and this process runs as user 65534" in refusal_for_a_plain_user(anybodys)


def test_a_name_too_long_for_the_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="name too long"):
        prepare_data_folder(tmp_path / ("x" * 300))


def test_the_socket_lies_in_the_private_folder_of_the_session(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    path = choose_socket(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})

    assert path.parent == tmp_path / "semcache"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("unfit", ["", "relative", "/nowhere", "open"])
def test_a_session_folder_that_is_not_private_is_not_used(tmp_path: Path, unfit: str) -> None:
    runtime = tmp_path / "open" if unfit == "open" else Path(unfit)
    if unfit == "open":
        runtime.mkdir()
        runtime.chmod(0o755)

    path = choose_socket(tmp_path, {"XDG_RUNTIME_DIR": str(runtime)})

    assert path.parent.name == f"semcache-{os.geteuid()}"


def test_a_long_session_folder_gives_way_to_a_short_one(tmp_path: Path) -> None:
    runtime = tmp_path / ("r" * 100)
    runtime.mkdir(mode=0o700)

    path = choose_socket(tmp_path, {"XDG_RUNTIME_DIR": str(runtime)})

    assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
    assert path.parent.name == f"semcache-{os.geteuid()}"


def test_two_folders_have_two_sockets_and_one_folder_has_one(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    two.mkdir()

    assert choose_socket(one, {}) == choose_socket(one, {}) != choose_socket(two, {})


def test_a_runtime_folder_made_by_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)

    with pytest.raises(EmbeddedServerError, match=r"belongs to user .* must belong to user .*TMPDIR"):
        make_private(folder, user=os.geteuid() + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_given_to_another_user_is_refused_when_the_socket_is_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "semcache"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)

    with pytest.raises(EmbeddedServerError, match="belongs to user 65534"):
        choose_socket(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_symbolic_link_in_place_of_the_runtime_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "runtime").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(EmbeddedServerError, match="symbolic link"):
        make_private(tmp_path / "runtime")


def test_a_runtime_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(EmbeddedServerError, match="mode 777"):
        make_private(folder)


def test_the_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    first = folder_secret(tmp_path)

    assert len(first) == 32
    assert folder_secret(tmp_path) == first
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert folder_secret(tmp_path / "other") != first


def test_processes_that_ask_at_once_get_the_same_secret(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from semcache.stores.embedded import folder_secret; print('ready', flush=True); "
        "sys.stdin.readline(); print(folder_secret(pathlib.Path(sys.argv[1])).hex())"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    root = Path(semcache.__file__).parents[1]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        for _ in range(4)
    ]

    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    secrets = {process.communicate(timeout=30)[0].strip() for process in processes}

    assert secrets == {folder_secret(tmp_path).hex()}
    assert sorted(os.listdir(tmp_path)) == ["secret"]


def test_what_a_killed_process_left_of_a_secret_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "secret.new").write_bytes(b"half")

    assert len(folder_secret(tmp_path)) == 32
    assert sorted(os.listdir(tmp_path)) == ["secret"]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_of_a_wrong_size_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * size)
    path.chmod(0o600)

    with pytest.raises(EmbeddedServerError, match=rf"holds {size} bytes, and must hold 32"):
        folder_secret(tmp_path)


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    folder_secret(tmp_path)
    (tmp_path / "secret").chmod(0o644)

    with pytest.raises(EmbeddedServerError, match=r"mode 644.*chmod 600"):
        folder_secret(tmp_path)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_secret_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "secret"
    if kind == "link":
        (tmp_path / "x").write_bytes(b"x" * 32)
        path.symlink_to(tmp_path / "x")
    elif kind == "folder":
        path.mkdir(mode=0o700)
    else:
        os.mkfifo(path, 0o600)

    with pytest.raises(EmbeddedServerError, match=r"secret"):
        folder_secret(tmp_path)
