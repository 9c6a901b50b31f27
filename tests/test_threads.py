import threading

import pytest
import torch

from snowball.threads import make_executor, use_threads


def test_one_thread_does_all_work_itself_and_at_once() -> None:
    with make_executor(1) as executor:
        done = executor.submit(threading.current_thread)
        assert done.done()
        assert done.result() is threading.current_thread()


def test_a_second_thread_works_in_order_and_torch_has_no_further_one_there() -> None:
    order: list[int] = []
    with use_threads(1), make_executor(2) as executor:
        for number in range(50):
            executor.submit(order.append, number)
        assert executor.submit(torch.get_num_threads).result() == 1
        assert executor.submit(threading.current_thread).result() is not threading.current_thread()
    assert order == list(range(50))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_reaches_who_asks_for_the_result(threads: int) -> None:
    with make_executor(threads) as executor, pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result()
