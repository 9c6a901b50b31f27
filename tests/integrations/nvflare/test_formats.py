"""The tensors of the global model, known to the server or found by a majority."""

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare_federation import (
    DIFF,
    FULL,
    GLOBAL,
    SITES,
    State,
    assert_average,
    make_federation,
    make_honest_results,
    make_result,
)

from snowball.guard import AuditLog


def test_the_global_models_names_count_where_it_is_known_even_against_all_clients() -> None:
    federation = make_federation("differences")
    models = [make_result(site, {"other": np.ones(3, np.float32)}, DIFF) for site in SITES]
    assert all(np.array_equal(federation(models)[name], GLOBAL[name]) for name in GLOBAL)


def test_an_unknown_models_names_are_those_of_more_than_half_and_then_stay() -> None:
    federation = make_federation("unknown model", max_share=1.0)
    odd = [make_result(site, {"other": np.ones(3, np.float32)}, DIFF) for site in SITES[:4]]
    state = federation([*odd, *make_honest_results(DIFF, SITES[4:])])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)  # half is not more than half
    assert_average(federation([*odd[:3], *make_honest_results(DIFF, SITES[3:])]), SITES[3:])
    assert_average(
        federation([*odd, *make_honest_results(DIFF, SITES[4:6])]), SITES[4:6]
    )  # the last round's names, though outvoted


def test_a_client_cannot_stuff_the_ballot_on_an_unknown_models_names() -> None:
    federation = make_federation("unknown model")
    stuffed = [make_result(SITES[0], {"other": np.ones(3, np.float32)}, DIFF) for _ in range(20)]
    assert_average(federation([*stuffed, *make_honest_results(DIFF, SITES[1:])]), SITES[1:])


@pytest.mark.parametrize("sent", [{"counter": np.array(3)}, {"norm.running_mean": np.ones(3, np.float32)}, {}])
def test_an_unknown_model_of_which_nothing_is_trained_changes_nothing(sent: State, audit: AuditLog) -> None:
    federation = make_federation("unknown model", audit)
    state = federation([make_result(SITES[0], sent, DIFF)])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)
    assert audit.read_entries()[0]["outcome"] == "kept"
    assert_average(federation(make_honest_results(DIFF)), SITES)


def test_whole_models_are_refused_where_the_global_one_is_unknown(audit: AuditLog) -> None:
    federation = make_federation("unknown model", audit)
    assert_average(
        federation([*make_honest_results(FULL, SITES[:2]), *make_honest_results(DIFF, SITES[2:])]), SITES[2:]
    )
    assert {fault["detail"] for fault in audit.read_entries()[0]["dropped"]} == {
        "it sent a whole model, and the global one is not known"
    }
