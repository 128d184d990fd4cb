"""Where the embedded server may live: its data folder, its socket, its secret.

Knows the conventions of the platforms, whom a folder must belong to, which file systems are local, and how long
the path of a unix socket may be. Starts nothing; `embedded` and its keeper do that.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from semcache.errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl

SECRET_BYTES = 32
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107  # sun_path without its closing NUL

# Locks on these are slow, lost on reconnection or seen by one machine only, and an append-only file on them
# is not safe against another machine.
_NETWORK = re.compile(
    r"9p|acfs|afpfs|afs|beegfs|ceph|cifs|coda|davfs|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs[34]?|ocfs2|orangefs"
    r"|panfs|pvfs2|smb[23]|smbfs|vboxsf|webdav|fuse\.(blobfuse2?|ceph|curlftpfs|davfs2|gcsfuse|gdfs|glusterfs|goofys"
    r"|hdfs|juicefs|lustre|mfs|moosefs|mount-s3|rclone|s3fs|sshfs|vmhgfs-fuse)|(fuse\.)?grpcfuse"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of the mount table."""

    point: str
    kind: str


def default_folder(environ: Mapping[str, str], *, platform: str) -> Path:
    """Return the user's data folder by the convention of the platform (a `sys.platform`)."""
    if chosen := environ.get("SEMCACHE_HOME"):
        return Path(chosen)
    if platform != "darwin" and os.path.isabs(base := environ.get("XDG_DATA_HOME", "")):
        return Path(base) / "semcache"
    home = Path(
        environ.get("HOME", "") or os.path.expanduser("~")
    )  # which is "~" for a user without an account
    if not home.is_absolute():
        raise EmbeddedServerError(
            f"user {os.geteuid()} has no home folder for the data; set SEMCACHE_HOME, or name a folder"
        )
    if platform == "darwin":
        return home / "Library" / "Application Support" / "semcache"
    return home / ".local" / "share" / "semcache"


def prepare_data_folder(folder: Path, *, mounts: Iterable[Mount] | None = None) -> None:
    """Make the folder if it is missing, and see that it is private and on a local file system.

    Args:
        folder: Absolute, without symbolic links.
        mounts: The mount table; None reads the system's.
    """
    mount = mount_of(str(folder), _mounts() if mounts is None else mounts)
    if mount is not None and is_network(mount):
        raise EmbeddedServerError(
            f"the data folder {folder} is on a network file system ({mount.kind} at {mount.point}), where file locks "
            "and the append-only file can't be trusted; choose a local folder, or use a server with redis://…"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if os.geteuid() not in (found.st_uid, 0):
            raise EmbeddedServerError(
                f"the data folder {folder} belongs to user {found.st_uid}, and this process runs as user "
                f"{os.geteuid()}; choose a folder of your own"
            )
        with os.scandir(folder) as entries:
            names = {entry.name for entry in entries}
        if found.st_mode & 0o077 and (not names or "users.lock" in names):
            folder.chmod(0o700)
        elif found.st_mode & 0o022:  # somebody's folder, with other things in it: not ours to close
            raise EmbeddedServerError(
                f"the data folder {folder} may be written by other users (mode {stat.S_IMODE(found.st_mode):o}); "
                "choose a new folder, or run chmod 700 on it"
            )
    except OSError as error:
        raise EmbeddedServerError(
            f"the data folder {folder} can't be used: {error.strerror}; choose a folder that this user may write"
        ) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise EmbeddedServerError(
            f"the data folder {folder} can't be written by this user; choose another folder, or change its permissions"
        )


def choose_socket(folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the socket for a data folder; makes the private folder that holds it.

    The name is a hash of the folder's real path, so that every process of this user comes to the same one, and of
    its inode, so that a folder removed under its server and made again doesn't get the old one's socket.
    """
    found = folder.stat()
    identity = b"%d %d %s" % (found.st_dev, found.st_ino, os.fsencode(folder))
    name = hashlib.sha256(identity).hexdigest()[:20] + ".sock"
    for runtime in _runtime_folders(environ):
        path = runtime / name
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            make_private(runtime)
            return path
    raise AssertionError("the last runtime folder is always short enough")


def _runtime_folders(environ: Mapping[str, str]) -> Iterable[Path]:
    user = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and is_private(Path(runtime), user=user):
        yield Path(runtime) / "semcache"
    yield Path(tempfile.gettempdir()).absolute() / f"semcache-{user}"
    yield Path("/tmp") / f"semcache-{user}"


def is_private(folder: Path, *, user: int) -> bool:
    """Tell whether it is a folder (no symbolic link) of this user that nobody else may enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077


def make_private(folder: Path, *, user: int | None = None) -> None:
    """Make a folder for sockets, or refuse the one that is there.

    Args:
        user: Whom an existing folder must belong to; None means the effective user of this process.
    """
    user = os.geteuid() if user is None else user
    advice = "remove it, or set XDG_RUNTIME_DIR or TMPDIR to a folder of your own"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise EmbeddedServerError(
            f"the runtime folder {folder} can't be made: {error.strerror}; {advice}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedServerError(
            f"the runtime folder {folder} is a symbolic link, and must be a folder; {advice}"
        )
    if found.st_uid != user:
        raise EmbeddedServerError(
            f"the runtime folder {folder} belongs to user {found.st_uid}, and must belong to user {user}; {advice}"
        )
    if found.st_mode & 0o077:
        raise EmbeddedServerError(
            f"the runtime folder {folder} is open to other users (mode {stat.S_IMODE(found.st_mode):o}), and must "
            f"have mode 700; {advice}"
        )


def folder_secret(folder: Path) -> bytes:
    """Return the secret of a data folder: 32 random bytes in a file of its own, made by whoever asks first."""
    prepare_data_folder(folder)
    path = folder / "secret"
    try:
        found = _read_secret(path)
        return _make_secret(path) if found is None else found
    except OSError as error:
        raise EmbeddedServerError(
            f"the secret {path} can't be read or made: {error.strerror}; it must be a file of mode 600 of this user"
        ) from error


def _make_secret(path: Path) -> bytes:
    """Make the file under a lock on its folder, unless another process was faster."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        found = _read_secret(path)
        if found is not None:
            return found
        secret = secrets.token_bytes(SECRET_BYTES)
        draft = path.with_name("secret.new")  # what a killed process left of it is overwritten
        with open(
            draft, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)
        ) as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        os.fsync(directory)
        return secret
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)  # a child forked meanwhile would keep it otherwise
        os.close(directory)


def _read_secret(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise EmbeddedServerError(f"the secret {path} isn't a file; remove it, and a new one is made")
        if found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"the secret {path} has mode {stat.S_IMODE(found.st_mode):o}, and must have 600: others may have "
                "read it; run chmod 600 on it, or remove it for a new one (which empties the cache)"
            )
        secret = file.read(SECRET_BYTES + 1)
    if len(secret) != SECRET_BYTES:
        raise EmbeddedServerError(
            f"the secret {path} holds {found.st_size} bytes, and must hold {SECRET_BYTES}; restore it, or remove it "
            "for a new one (which empties the cache)"
        )
    return secret


def mounts_from_proc(text: str) -> list[Mount]:
    """Read the lines of Linux's /proc/mounts."""
    lines = (line.split(" ") for line in text.splitlines())
    return [Mount(point=_unescape(line[1]), kind=line[2]) for line in lines if len(line) >= 3]


def mounts_from_bsd(text: str) -> list[Mount]:
    """Read what `mount` prints on macOS: ``//server/share on /Volumes/share (smbfs, nodev)``."""
    found = (re.fullmatch(r".* on (/.*) \(([^,()]+)[^()]*\)", line) for line in text.splitlines())
    return [Mount(point=match[1], kind=match[2]) for match in found if match is not None]


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that an absolute path is on: the deepest, and of several there the last."""
    lineage = {str(parent): depth for depth, parent in enumerate(reversed(PurePosixPath(path, "x").parents))}
    best: Mount | None = None
    for mount in mounts:
        depth = lineage.get(mount.point)
        if depth is not None and (best is None or depth >= lineage[best.point]):
            best = mount
    return best


def is_network(mount: Mount) -> bool:
    """Tell whether a mount is served by another machine, or by the host of a virtual one."""
    if mount.kind == "9p" and mount.point == "/":
        return False  # the root of a sandbox, which sees its own locks
    return _NETWORK.fullmatch(mount.kind) is not None


def _mounts() -> list[Mount]:
    """Return the mount table, or nothing where it can't be read: the locks are tried all the same."""
    try:
        if sys.platform == "darwin":
            command = ["/sbin/mount"]
            return mounts_from_bsd(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return mounts_from_proc(Path("/proc/self/mounts").read_text(errors="surrogateescape"))
    except (OSError, subprocess.CalledProcessError):
        return []
