import torch

from snowball.rng import derive, numpy_stream, stream


def test_a_name_always_gives_the_same_draws() -> None:
    first, again = (torch.rand(5, generator=stream(3, "client", 7, "round", 2)) for _ in range(2))
    assert torch.equal(first, again)
    assert numpy_stream(3, "x").random() == numpy_stream(3, "x").random()


def test_other_names_and_seeds_give_other_draws() -> None:
    names = [(3, "a", "bc"), (3, "ab", "c"), (3, "a", 1), (3, "a", "1"), (4, "a", 1), (3,), (-3,)]
    assert len({derive(*name) for name in names}) == len(names)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=stream(1, "x"))
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_are_pinned_so_that_records_stay_comparable() -> None:
    assert derive(1, "cohort", "round", 1) == 9038445981133930942
