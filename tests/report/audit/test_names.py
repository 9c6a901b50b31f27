"""Clients are found by the operator's name, by the framework's id and by what is shown of a name."""

from collections.abc import Callable
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.report import Audit
from snowball.report.audit.names import MAX_CLIENT_CHARS

Make = Callable[..., dict[str, Any]]
ID, NEW_ID = "12345678901234567890", "99999999999999999999"


def test_a_client_is_found_by_name_id_and_shown_name(make_entry: Make) -> None:
    odd, long = "a\nb", "x" * 500
    audit = Audit([make_entry(1, elected=["Aachen", odd, long], ids={"Aachen": ID})])
    for text in ("Aachen", ID):
        assert audit.find_client(text).label == f"Aachen ({ID})"
        assert [moment.state for moment in audit.history(text)] == ["elected"]
    assert audit.find_client("a\\nb").client == odd
    assert audit.find_client("x" * MAX_CLIENT_CHARS + "…").client == long
    with pytest.raises(SettingError, match=f"did you mean '{ID}'"):
        audit.find_client(ID[:-1])
    with pytest.raises(SettingError, match="did you mean 'Aachen'"):
        audit.find_client("Achen")


def test_a_site_that_got_its_name_later_is_one_client(make_entry: Make) -> None:
    dropped = [{"client": ID, "reason": "norm", "detail": ""}]
    facts = {"votes": {ID: 1.0, "b": 2.0}, "clusters": 3}
    decision = {"client": ID, "rule": "allow", "reason": "", "by": "Ada", "until": None}
    before = make_entry(
        1, asked=[ID, "b"], answered=[ID, "b"], elected=["b"], left_out=[ID], averaged=[ID, "b"], facts=facts,
        shares={ID: 0.5, "b": 0.5}, decisions=[decision],
    )  # fmt: skip
    audit = Audit(
        [
            before,
            make_entry(2, dropped=dropped, silent=["b"]),
            make_entry(3, elected=["Aachen", "b"], ids={"Aachen": ID}),
            make_entry(4, elected=["Aachen", "b"], ids={"Aachen": NEW_ID}),
        ]
    )
    assert [client.client for client in audit.clients] == ["Aachen", "b"]
    assert audit.clients[0].ids == [ID, NEW_ID]
    assert audit.clients[0].label == f"Aachen ({NEW_ID})"
    moments = audit.history(ID)
    assert [moment.state for moment in moments] == ["left_out", "malformed", "elected", "elected"]
    assert (moments[0].facts, moments[0].ranges, moments[0].share) == ({"votes": 1.0}, {"votes": (2.0, 2.0)}, 0.5)
    assert moments[0].decision == decision | {"client": "Aachen"}
    assert before["left_out"] == [ID]


def test_a_stranger_whose_id_is_a_sites_name_is_another_client(make_entry: Make) -> None:
    stranger = "Aachen (an unknown id)"
    fault = {"client": stranger, "reason": "identity", "detail": ""}
    ids = {"Aachen": ID, stranger: "Aachen"}
    audit = Audit([make_entry(number, elected=["Aachen"], dropped=[fault], ids=ids) for number in (1, 2)])
    assert [(client.client, client.rounds) for client in audit.clients] == [
        ("Aachen", {"elected": 2}),
        (stranger, {"dropped": 2}),
    ]
    assert audit.find_client("Aachen").ids == [ID]


def test_without_names_nothing_is_copied(make_entry: Make) -> None:
    entries = [make_entry(1, elected=["a"])]
    assert Audit(entries).entries is entries
