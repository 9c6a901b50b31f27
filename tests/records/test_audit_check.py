"""A change of an audit is found, and the first line that was changed is named."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.errors import MissingExtra, RunError
from snowball.records.audit_chain import START, hash_line, seal_entry
from snowball.records.audit_check import Verification, verify_audit
from snowball.records.files import read_lines_backwards
from snowball.records.signing import fingerprint_key, read_private_key, read_public_key

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))
PUBLIC = KEY.public_key()


def make_entry(round: int) -> dict[str, Any]:
    names = ("answered", "silent", "dropped", "elected", "left_out", "averaged")
    rest = {"time": "", "mode": "enforce", "outcome": "aggregated", "reason": None, "asked": None}
    facts = {"charge": f'"{round}", "signature": "{"0" * 128}"'}
    models = {"model_before": "", "model_after": ""}
    return {**{name: [] for name in names}, **rest, **models, "round": round, "facts": facts}


def make_lines(keys: Sequence[Ed25519PrivateKey | None], previous: str = START) -> list[bytes]:
    """Return the lines of an audit, each signed with one of these keys or not."""
    lines: list[bytes] = []
    for round, key in enumerate(keys, 1):
        lines.append(seal_entry(make_entry(round), previous, key))
        previous = hash_line(lines[-1])
    return lines


SIGNED, UNSIGNED = make_lines([KEY] * 5), make_lines([None] * 5)
EARLIER = [json.dumps(make_entry(round)).encode() for round in range(1, 4)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


def verify(path: Path, lines: Sequence[bytes], keys: Any = (PUBLIC,), end: Any = None) -> Verification:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return verify_audit(path, keys, end)


def test_an_unchanged_audit_is_said_to_be_unchanged(path: Path) -> None:
    signed = verify(path, SIGNED)
    assert (signed.fault, signed.rounds, signed.chained, signed.chained_from) == (None, 5, 5, 1)
    assert (signed.signed, signed.signed_from, signed.signers) == (5, 1, (fingerprint_key(PUBLIC),))
    unsigned = verify(path, UNSIGNED, ())
    assert (unsigned.fault, unsigned.chained, unsigned.signed, unsigned.signers) == (None, 5, 0, ())
    assert verify(path, SIGNED, ()).signers == ()
    assert verify(path, []).fault is None


@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_any_changed_byte_of_a_signed_audit_is_found_in_its_line(data: st.DataObject, path: Path) -> None:
    content = b"".join(line + b"\n" for line in SIGNED)
    index = data.draw(st.integers(0, len(content) - 2))  # without the last newline the line is torn
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[index]))
    path.write_bytes(content[:index] + bytes([byte]) + content[index + 1 :])
    found = verify_audit(path, [PUBLIC])
    assert found.fault is not None
    assert found.line == content.count(b"\n", 0, index) + 1


@pytest.mark.parametrize("name", [b'"signature"', b'"previous"', b'"round"', b', "sig'])
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_changed_name_of_a_field_is_found_in_its_line(name: bytes, number: int, path: Path) -> None:
    line = SIGNED[number - 1]
    start = line.rindex(name)
    for changed in (name.replace(b" ", b"\t"), name[:2] + b"x" + name[3:], name.upper()):
        lines = [*SIGNED]
        lines[number - 1] = line[:start] + changed + line[start + len(name) :]
        assert (verify(path, lines).line == number) == (changed != name)


@given(first=st.integers(0, 4), second=st.integers(0, 4))
@settings(max_examples=30, deadline=None, database=None)
def test_removed_repeated_and_swapped_lines_are_found_where_they_begin(first: int, second: int, path: Path) -> None:
    first, second = min(first, second), max(first, second)
    for lines, keys in ((SIGNED, [PUBLIC]), (UNSIGNED, [])):
        removed = verify(path, [*lines[:first], *lines[second + 1 :]], keys)
        assert removed.line == (first + 1 if second < 4 else None)  # the end is not in the file
        repeated = verify(path, [*lines[: second + 1], *lines[first:]], keys)
        assert repeated.line == second + 2
        swapped = [*lines]
        swapped[first], swapped[second] = lines[second], lines[first]
        assert verify(path, swapped, keys).line == (first + 1 if first < second else None)


@given(number=st.integers(1, 4), digit=st.sampled_from("123456789"))
@settings(max_examples=20, deadline=None, database=None)
def test_a_changed_line_without_a_signature_is_one_of_the_two_that_do_not_fit(
    number: int, digit: str, path: Path
) -> None:
    lines = [*UNSIGNED]
    lines[number - 1] = lines[number - 1].replace(b'"reason": null', f'"reason": "{digit}"'.encode())
    fault = f"line {number + 1} (round {number + 1}) does not follow line {number} (round {number}): one of the two"
    assert str(verify(path, lines, ()).fault).startswith(fault)


def test_a_line_that_a_signature_proves_is_not_blamed(path: Path) -> None:
    lines = make_lines([None, None, KEY])
    lines[1] = lines[1].replace(b'"reason": null', b'"reason": ""')
    assert verify(path, lines).line == 2
    assert verify(path, lines, ()).line == 3


@pytest.mark.parametrize(
    ("lines", "line", "fault"),
    [
        ([*SIGNED[:2], b"{", *SIGNED[3:]], 3, "line 3 is not valid JSON"),
        ([*SIGNED[:2], b'{"round": 3}', *SIGNED[3:]], 3, "line 3 is not a round of an audit: it has no 'time'"),
        (make_lines([KEY, OTHER_KEY]), 2, "line 2 (round 2) has a wrong signature"),
        (make_lines([KEY, None]), 2, "line 2 (round 2) is not signed, although line 1 (round 1) is"),
        ([SIGNED[0], EARLIER[1]], 2, "line 2 (round 2) is not signed"),
        (UNSIGNED, None, "no line is signed, and a key is given"),
        (SIGNED[1:], 1, "line 1 (round 2) follows a line that is not in this file"),
        ([UNSIGNED[0], EARLIER[1]], 2, "line 2 (round 2) lacks the hash of the line before it"),
        ([EARLIER[0], SIGNED[0]], 1, "line 2 (round 1) does not follow line 1 (round 1)"),
        (EARLIER, None, "no line has the hash of the line before it"),
    ],
)
def test_a_fault_says_what_is_wrong(lines: list[bytes], line: int | None, fault: str, path: Path) -> None:
    found = verify(path, lines)
    assert found.line == line
    assert str(found.fault).startswith(fault)


def test_the_chain_of_an_earlier_audit_starts_at_its_first_new_line(path: Path) -> None:
    lines = [*EARLIER, *make_lines([None, KEY], hash_line(EARLIER[-1]))]
    found = verify(path, lines)
    assert (found.fault, found.rounds, found.chained, found.signed, found.signed_from) == (None, 5, 2, 1, 2)
    lines[2] = EARLIER[0]
    assert verify(path, lines).line == 4


def test_each_line_may_be_signed_by_one_of_several_keys(path: Path) -> None:
    lines, keys = make_lines([KEY, KEY, OTHER_KEY]), [PUBLIC, OTHER_KEY.public_key()]
    assert verify(path, lines, keys).signers == tuple(map(fingerprint_key, keys))
    assert verify(path, lines).line == 3


def test_a_state_finds_a_cut_end(path: Path) -> None:
    end = 5, hash_line(SIGNED[-1])
    assert (verify(path, SIGNED, end=end).after, verify(path, SIGNED[:3]).fault) == (0, None)
    assert verify(path, SIGNED, end=(3, hash_line(SIGNED[2]))).after == 2
    for lines in (SIGNED[:4], SIGNED[:1], []):
        fault = "the last line that the guard's state remembers, of round 5, is not in the audit"
        assert str(verify(path, lines, end=end).fault).startswith(fault)


def test_a_torn_last_line_is_no_fault(path: Path) -> None:
    path.write_bytes(SIGNED[0] + b"\n" + SIGNED[1])
    found = verify_audit(path, [PUBLIC])
    assert (found.fault, found.rounds, found.torn) == (None, 1, True)


def test_what_is_no_file_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no audit in"):
        verify_audit(tmp_path)


@pytest.mark.skipif(which("openssl") is None, reason="openssl is not installed")
def test_openssl_makes_keys_and_checks_signatures(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = ["openssl", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    run("genpkey", "-algorithm", "ed25519", "-out", "audit.pem")
    run("pkey", "-in", "audit.pem", "-pubout", "-out", "audit.pub")
    key = read_private_key(tmp_path / "audit.pem")
    (line,) = make_lines([key])
    body, _, signature = line.rpartition(b', "signature": "')
    (tmp_path / "body").write_bytes(body + b"}")
    (tmp_path / "signature").write_bytes(bytes.fromhex(signature.removesuffix(b'"}').decode()))
    check = ["-verify", "-rawin", "-pubin", "-inkey", "audit.pub", "-in", "body", "-sigfile", "signature"]
    assert "Signature Verified Successfully" in run("pkeyutl", *check)
    (tmp_path / "body").write_bytes(body + b"} ")
    with pytest.raises(subprocess.CalledProcessError):
        run("pkeyutl", *check)
    run("pkey", "-pubin", "-in", "audit.pub", "-outform", "DER", "-out", "key")
    assert run("dgst", "-sha256", "-r", "key").split()[0] == fingerprint_key(read_public_key(tmp_path / "audit.pub"))


def encode_private(encryption: Any = None) -> bytes:
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.mark.parametrize("content", [b"", b"\xff", encode_private()[:60], b"-----BEGIN PRIVATE KEY-----\n"])
@pytest.mark.parametrize("read", [read_private_key, read_public_key])
def test_what_is_no_key_is_one_sentence(content: bytes, read: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(RunError, match=r"key for ed25519: .*PEM file was expected"):
        read(tmp_path / "key")
    with pytest.raises(RunError, match="cannot be used: No such file"):
        read(tmp_path / "none")


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for content in (encode_private(BestAvailableEncryption(b"secret")), other, public):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(RunError, match="is not a private key for ed25519: an unencrypted PEM file was expected"):
            read_private_key(tmp_path / "key")
    for content in (encode_private(), other):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(RunError, match="is not a public key for ed25519"):
            read_public_key(tmp_path / "key")


@pytest.mark.parametrize("read", [read_private_key, read_public_key])
def test_a_missing_package_is_one_sentence(read: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtra, match=r"^signed audits need cryptography: pip install 'cryptography>=42'$"):
        read(tmp_path / "key")


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    block=st.integers(1, 50),
)
@settings(max_examples=60, deadline=None, database=None)
def test_lines_are_read_backwards_whatever_the_size_of_a_block(lines: list[bytes], block: int, path: Path) -> None:
    *whole, torn = lines or [b""]
    path.write_bytes(b"".join(line + b"\n" for line in whole) + torn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("snowball.records.files.BLOCK_BYTES", block)
        assert list(read_lines_backwards(path)) == whole[::-1]
