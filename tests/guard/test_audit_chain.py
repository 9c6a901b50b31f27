"""The lines of a guard's audit follow each other, across restarts; what somebody else did to the file stays visible."""

import logging
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from snowball.defenses import Median
from snowball.errors import RunError, SettingError
from snowball.guard import Guard, Reply
from snowball.guard.state import read_state, write_state
from snowball.records.audit import read_audit
from snowball.records.audit_check import Verification, verify_audit
from snowball.records.signing import fingerprint_key

MODEL = runpy.run_path(str(Path(__file__).parent / "conftest.py"))["MODEL"]
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "audit.pem"
    path.touch(mode=0o600)
    path.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "snowball"):
        yield caplog


class Federation:
    """A federation whose guard can be started again."""

    def __init__(self, audit: Path, replies: list[Reply], **settings: Any) -> None:
        self.audit, self.replies, self.settings = audit, replies, settings
        self.state = audit.with_name("state")

    def start(self) -> Guard:
        guard = Guard(Median(), audit=self.audit, **self.settings)
        guard.load(self.state)
        return guard

    def run(self, rounds: int, guard: Guard | None = None, save: bool = True) -> Verification:
        """Run rounds, with a guard that is started again unless one is given, and verify the audit."""
        guard = guard or self.start()
        for _ in range(rounds):
            guard(MODEL, self.replies)
        if save:
            guard.save(self.state)
        return verify_audit(self.audit)


@pytest.fixture
def federation(audit: Path, replies: list[Reply]) -> Federation:
    return Federation(audit, replies)


FOREIGN = "does not end with the line that the guard wrote last"


def test_a_restarted_guard_continues_the_chain(federation: Federation, log: pytest.LogCaptureFixture) -> None:
    federation.run(2)
    found = federation.run(2)
    assert (found.fault, found.rounds, found.chained) == (None, 4, 4)
    end = read_state(federation.state).audit
    assert end is not None
    assert (end[0], verify_audit(federation.audit, end=end).after) == (4, 0)
    assert not log.text


def test_without_a_state_the_chain_goes_on_from_the_last_line(audit: Path, replies: list[Reply]) -> None:
    for _ in range(2):
        Guard(Median(), audit=audit)(MODEL, replies)
    assert verify_audit(audit).chained == 2


def test_a_torn_line_is_cut_and_the_chain_goes_on(federation: Federation, log: pytest.LogCaptureFixture) -> None:
    federation.run(2)
    with federation.audit.open("ab") as file:
        file.write(b'{"round": 3, "ti')
    found = federation.run(1)
    assert (found.fault, found.rounds, found.torn) == (None, 3, False)
    assert not log.text


def test_a_line_that_could_not_be_written_leaves_no_gap(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = federation.start()
    federation.run(1, guard)
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        guard(MODEL, federation.replies)
    assert federation.run(1, guard).fault is None
    assert [entry["round"] for entry in read_audit(federation.audit)] == [1, 3]


def test_a_state_may_be_older_than_the_audit(federation: Federation, log: pytest.LogCaptureFixture) -> None:
    federation.run(1)
    federation.run(3, save=False)  # as after a crash
    found = federation.run(1)
    assert (found.fault, found.rounds) == (None, 5)
    assert not log.text


def test_an_audit_of_an_earlier_version_goes_on_with_a_chain(federation: Federation) -> None:
    federation.run(2)
    lines = federation.audit.read_text().replace('"previous"', '"other"').splitlines(keepends=True)
    federation.audit.write_text("".join(lines))
    federation.state.unlink()
    found = federation.run(2)
    assert (found.fault, found.rounds, found.chained) == (None, 4, 2)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("left", [b"", b"1\n", b"1\n2\n", b"1\n2\n3\n1\n"])
def test_a_cut_or_replaced_audit_stays_visible(
    left: bytes, running: bool, federation: Federation, log: pytest.LogCaptureFixture
) -> None:
    guard = federation.start()
    federation.run(3, guard)
    lines = federation.audit.read_bytes().splitlines(keepends=True)
    kept = [lines[int(number) - 1] for number in left.split()]
    federation.audit.write_bytes(b"".join(kept))
    appended = len(kept) > 3
    found = federation.run(2, guard if running else None)
    if appended and not running:  # an earlier line may have followed, so only the line itself is found
        assert (found.line, FOREIGN in log.text) == (4, False)
    else:
        assert log.text.count(FOREIGN) == 1
        assert found.line == (4 if appended else len(kept) + 1)


def test_a_deleted_audit_is_noticed_by_what_is_written_next(federation: Federation, log: Any) -> None:
    federation.run(2)
    federation.audit.rename(federation.audit.with_name("moved"))
    found = federation.run(1)
    assert (found.line, found.round) == (1, 3)
    assert FOREIGN in log.text
    moved = federation.audit.with_name("moved").read_bytes()
    federation.audit.write_bytes(moved + federation.audit.read_bytes())
    assert verify_audit(federation.audit).fault is None


def test_two_guards_in_one_file_break_the_chain(audit: Path, replies: list[Reply], log: Any) -> None:
    one, other = (Guard(Median(), audit=audit) for _ in range(2))
    one(MODEL, replies)
    other(MODEL, replies)
    assert verify_audit(audit).fault is None
    one(MODEL, replies)
    assert verify_audit(audit).line == 3
    assert log.text.count(FOREIGN) == 1


def test_only_the_end_of_the_file_is_read(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = federation.start()
    federation.run(1, guard)
    line = len(federation.audit.read_bytes())
    federation.run(8, guard)
    read = []
    monkeypatch.setattr("snowball.records.files.BLOCK_BYTES", 2 * line)
    monkeypatch.setattr("snowball.guard.audit_log.hash_line", lambda line: read.append(line) or "0" * 64)
    guard.record(guard.judge(MODEL, federation.replies), MODEL)
    assert len(read) == 2  # the last line and the new one


def test_every_line_is_signed(audit: Path, replies: list[Reply], key: Path, log: Any) -> None:
    federation = Federation(audit, replies, audit_key=str(key))
    federation.run(1)
    federation.run(1)
    found = verify_audit(audit, [KEY.public_key()])
    assert (found.fault, found.signed, found.signers) == (None, 2, (fingerprint_key(KEY.public_key()),))
    assert not log.text


def test_a_key_that_others_can_read_is_a_warning(audit: Path, key: Path, log: Any) -> None:
    key.chmod(0o640)
    Guard(audit=audit, audit_key=key)
    assert "run `chmod 600` on it" in log.text


def test_a_key_that_cannot_be_used_is_refused_before_a_round(audit: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="audit_key signs the lines of the audit: set audit, too"):
        Guard(audit_key=tmp_path / "key")
    with pytest.raises(RunError, match="key cannot be used: No such file"):
        Guard(audit=audit, audit_key=tmp_path / "key")


@pytest.mark.parametrize("audit", [5, [1], [1, "ab"], ["1", "0" * 64], [-1, "0" * 64]])
def test_a_state_whose_audit_is_no_hash_is_refused(audit: Any) -> None:
    plain = {**Guard(Median()).state_dict(), "audit": audit}
    with pytest.raises(RunError, match="its audit is not a round and a hash"):
        Guard(Median()).load_state_dict(plain)


def test_a_state_of_an_earlier_version_has_no_audit(tmp_path: Path) -> None:
    guard = Guard(Median())
    plain = guard.state_dict()
    del plain["audit"]
    guard.load_state_dict(plain)
    guard.save(tmp_path / "state")
    assert read_state(tmp_path / "state").audit is None
    write_state(tmp_path / "state", read_state(tmp_path / "state"))
