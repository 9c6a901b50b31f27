from benchmarks.choices import gap


def test_the_first_number_within_an_error_is_never_above_that_of_the_largest_gap() -> None:
    updates = gap.read_round("mnist-k20-4-s1/1")
    first, largest = (gap.find_clusters(updates, 2, 15, rule, [0]) for rule in ("first", "largest"))
    assert 2 <= first[0] <= largest[0] <= len(updates) / 2
