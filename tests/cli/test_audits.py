"""The command `audit --verify`: exit code 0 for unchanged, 1 with the first changed line, 2 for a user's fault."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from snowball.cli import main
from snowball.defenses import Median
from snowball.guard import Guard
from snowball.records.signing import fingerprint_key

ROOT = Path(__file__).parents[2]
SHARED = runpy.run_path(str(ROOT / "tests" / "guard" / "conftest.py"))
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
NAME = fingerprint_key(KEY.public_key())

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs the command in the folder of the audit: its exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["snowball", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return (int(caught.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a signed audit of four rounds, the keys and the state."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.pem").touch(mode=0o600)
    (tmp_path / "audit.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "audit.pub").write_bytes(public)
    run_rounds(4, audit_key="audit.pem").save("state")
    return tmp_path


def run_rounds(rounds: int, audit: str = "audit.jsonl", after: int = 0, **settings: str) -> Guard:
    guard = Guard(Median(), audit=audit, **settings)
    guard.round = after
    for _ in range(rounds):
        guard(SHARED["MODEL"], [SHARED["make_honest_reply"](number) for number in range(5)])
    return guard


UNSIGNED = "without --key, changes by somebody who also made all later hashes again are not found."
NO_STATE = "Without --state, lines that were cut off the end are not missed."


def test_an_unchanged_audit_is_one_sentence_and_what_it_does_not_prove(call: Call) -> None:
    sentence = "All 4 rounds are unchanged since round 1"
    assert call("audit.jsonl", "--verify") == (
        0,
        f"{sentence}.\nThey are signed from round 1 on; {UNSIGNED}\n{NO_STATE}\n",
        "",
    )
    signed = f"{sentence}, signed by the key {NAME}.\n"
    assert call("audit.jsonl", "--verify", "--key", "audit.pub") == (0, f"{signed}{NO_STATE}\n", "")
    assert call("audit.jsonl", "--verify", "--key", "audit.pub", "--state", "state") == (0, signed, "")
    run_rounds(2, "plain.jsonl")
    assert "They are not signed: changes by somebody" in call("plain.jsonl", "--verify")[1]
    (Path.cwd() / "none.jsonl").touch()
    assert call("none.jsonl", "--verify")[:2] == (0, f"The audit has no rounds.\n{NO_STATE}\n")


def test_the_first_changed_line_is_named(call: Call, folder: Path) -> None:
    lines = (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)
    changed = [*lines[:2], lines[2].replace(b'"kept"', b'"aggregated"').replace(b"site-0", b"site-1"), lines[3]]
    (folder / "audit.jsonl").write_bytes(b"".join(changed))
    code, output, errors = call("audit.jsonl", "--verify", "--key", "audit.pub")
    wrong = "has a wrong signature: it was changed, or signed with another key"
    assert (code, output, errors) == (1, f"Line 3 (round 3) {wrong}.\n", "")
    code, output, _ = call("audit.jsonl", "--verify", "--key", "audit.pub", "--json")
    found = json.loads(output)
    assert (code, found["unchanged"], found["line"], found["round"], found["chained"]) == (1, False, 3, 3, 2)
    (folder / "audit.jsonl").write_bytes(b"".join([*lines[:2], b"{\x1b[31m\n", *lines[2:]]))
    code, output, _ = call("audit.jsonl", "--verify")
    assert (code, output.startswith("Line 3 is not valid JSON: "), "\x1b" in output) == (1, True, False)


def test_a_cut_end_needs_the_state(call: Call, folder: Path) -> None:
    lines = (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "audit.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:100])
    code, output, _ = call("audit.jsonl", "--verify")
    assert (code, output.splitlines()[-1]) == (0, "An incomplete last line, as a crash leaves it, is not counted.")
    code, output, _ = call("audit.jsonl", "--verify", "--state", "state")
    assert (code, output[:72]) == (1, "The last line that the guard's state remembers, of round 4, is not in th")


def test_an_audit_that_is_chained_and_signed_later_says_since_when(call: Call, folder: Path) -> None:
    run_rounds(3, "later.jsonl")
    earlier = (folder / "later.jsonl").read_text().replace('"previous"', '"other"')
    (folder / "later.jsonl").write_text(earlier)
    run_rounds(1, "later.jsonl", after=3)
    run_rounds(2, "later.jsonl", after=4, audit_key="audit.pem")
    code, output, _ = call("later.jsonl", "--verify", "--key", "audit.pub")
    assert (code, output.splitlines()[:2]) == (
        0,
        [
            f"3 of 6 rounds are unchanged since round 4, signed since round 5 by the key {NAME}.",
            "The 3 before that are of an earlier version, in which changes are not found.",
        ],
    )
    (folder / "earlier.jsonl").write_text(earlier)
    code, output, _ = call("earlier.jsonl", "--verify")
    assert (code, output.startswith("No line has the hash of the line before it")) == (1, True)


def test_a_later_line_than_the_states_is_said(call: Call) -> None:
    run_rounds(2, audit_key="audit.pem")
    code, output, _ = call("audit.jsonl", "--verify", "--key", "audit.pub", "--state", "state")
    assert (code, output.splitlines()[1]) == (0, "The guard's state remembers an earlier line; lines after that: 2.")


def test_what_cannot_be_verified_is_a_fault_of_the_user(call: Call) -> None:
    Guard(Median()).save("unaware")
    for arguments, fault in (
        (["none", "--verify"], "there is no audit in none: it is not a file"),
        (["audit.jsonl", "--verify", "--key", "audit.pem"], "audit.pem is not a public key for ed25519: "),
        (["audit.jsonl", "--verify", "--key", "none"], "none cannot be used: No such file or directory"),
        (["audit.jsonl", "--verify", "--state", "unaware"], "unaware does not remember an audit: "),
        (["audit.jsonl", "--verify", "--state", "audit.pem"], "audit.pem is not the state of a guard: "),
        (["audit.jsonl", "--verify", "--since", "1"], "--verify cannot be used with "),
        (["audit.jsonl", "--verify", "--html", "page"], "--verify cannot be used with "),
        (["audit.jsonl", "--key", "audit.pub"], "--key and --state need --verify"),
        (["audit.jsonl", "--state", "state"], "--key and --state need --verify"),
    ):
        code, output, errors = call(*arguments)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"snowball: {fault}")


def test_a_signed_audit_can_be_read_as_before(call: Call) -> None:
    code, output, _ = call("audit.jsonl", "--html", "page.html")
    assert (code, output.splitlines()[0]) == (0, "Nobody is suspect.")
    assert "4 rounds aggregated" in output


def test_the_script_of_the_documentation_checks_an_audit_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    script = page.rpartition("```python\n")[2].partition("```")[0]
    assert "snowball" not in script
    exec(compile(script, "script", "exec"), {})
    assert capsys.readouterr().out.startswith("unchanged; the last line is ")
    lines = (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b"site", b"side")
    for fault, left in ((AssertionError, [lines[0], *lines[2:]]), (InvalidSignature, [lines[0], changed, *lines[2:]])):
        (folder / "audit.jsonl").write_bytes(b"".join(left))
        with pytest.raises(fault):
            exec(compile(script, "script", "exec"), {})
