import gc
import sys
from multiprocessing.connection import Connection

from snowball.sim.engines.forkserver import pause_collection, start_forkserver


def test_no_garbage_is_collected_inside_and_all_is_as_before_after_it() -> None:
    with pause_collection():
        with pause_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_fork_has_what_workers_need_and_leaves_it_to_all_of_them() -> None:
    context = start_forkserver()
    ours, theirs = context.Pipe()
    process = context.Process(target=describe_process, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(60)
    assert ours.recv() == (True, True, True)
    process.join()


def describe_process(connection: Connection) -> None:
    connection.send(("snowball.sim.engines.worker" in sys.modules, gc.isenabled(), gc.get_freeze_count() > 0))
