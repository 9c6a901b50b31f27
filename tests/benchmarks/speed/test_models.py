from benchmarks.speed.models import BATCH, NAMES, STEPS, prepare_steps
from snowball.models import MODELS


def test_every_network_is_known_and_takes_steps() -> None:
    assert set(NAMES) <= set(MODELS)
    for name, parameters in (("cnn-quarter", 29_640), ("resnet8-bn", 77_754)):
        take_steps, count = prepare_steps(name, (1, 28, 28))
        assert count == parameters
        inputs, labels, *_ = take_steps.args  # type: ignore[attr-defined]
        assert (len(inputs), len(labels)) == (STEPS * BATCH, STEPS * BATCH)
        take_steps()
